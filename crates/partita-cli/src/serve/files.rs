//! How many files and sockets the hub may have open, and what follows for its connections.

/// How many connections there may be at once: as many as the server would take, but a quarter of what the system lets this
/// process open stays for readers and for the hub's own files. Raises that limit first, as far as this user may.
pub(crate) fn connections_max(wanted: usize) -> usize {
    match open_max() {
        Some(open) => wanted.min(usize::try_from(open / 4 * 3).unwrap_or(usize::MAX)),
        None => wanted,
    }
}

/// The limit after it was raised; none if there is none.
#[cfg(unix)]
fn open_max() -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    if raised.is_ok() { maximum } else { current }
}

#[cfg(not(unix))]
fn open_max() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_room_for_files() {
        assert_eq!(connections_max(1), 1);
        if let Some(open) = open_max() {
            assert!(connections_max(usize::MAX) as u64 <= open / 4 * 3);
        }
    }
}
