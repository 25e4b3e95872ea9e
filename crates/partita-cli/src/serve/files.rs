//! How many files and sockets the hub may have open, and what follows for its connections.

/// What one part of the process may take of the descriptors that the system gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Budget {
    /// Connections of AMQP clients, of one address and of all.
    pub(crate) address_connections: usize,
    pub(crate) connections: usize,
    /// Connections over HTTP.
    pub(crate) http: usize,
}

/// Descriptors that no connection gets: the log, its readers, listeners and all else in the process live on them.
const RESERVED_MIN: u64 = 64;
/// With fewer than these the hub is served, but it is worth a word.
pub(crate) const OPEN_MIN: u64 = 256;
const HTTP_MIN: u64 = 4;
const HTTP_MAX: u64 = 256;

/// Divides what can be open at once, pure: a quarter is reserved, a sixteenth is for HTTP, and the rest is for clients, of which
/// one address may have half.
pub(crate) fn divide(open_max: Option<u64>, wanted: usize) -> Budget {
    let open = open_max.unwrap_or(u64::MAX);
    let http = (open / 16).clamp(HTTP_MIN, HTTP_MAX);
    let rest = open.saturating_sub((open / 4).max(RESERVED_MIN)).saturating_sub(http);
    let connections = wanted.min(usize::try_from(rest).unwrap_or(usize::MAX)).max(1);
    Budget { address_connections: connections.div_ceil(2), connections, http: http as usize }
}

/// How many files this process may have open, after the limit was raised as far as this user may; none if there is none.
#[cfg(unix)]
pub(crate) fn open_max() -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    if raised.is_ok() { maximum } else { current }
}

#[cfg(not(unix))]
pub(crate) fn open_max() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_all_kinds_together_leave_what_the_log_needs() {
        for open in [0, 64, 100, 128, 256, 1_024, 20_000, 1 << 20] {
            let Budget { connections, http, .. } = divide(Some(open), 20_000);
            assert!((1..=20_000).contains(&connections) && (4..=256).contains(&http));
            if open >= 128 {
                let taken = (connections + http) as u64;
                assert!(taken + RESERVED_MIN.max(open / 4) <= open, "{open}: {taken}");
            }
        }
        let usual = divide(Some(1_024), 20_000);
        assert_eq!(usual, Budget { address_connections: 352, connections: 704, http: 64 });
        assert_eq!(divide(None, 20_000).connections, 20_000);
    }
}
