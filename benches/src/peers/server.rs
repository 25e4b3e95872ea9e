//! Servers of others: found on this machine, started in a directory of their own, stopped again.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// A start that takes longer never comes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server while it runs; it is stopped when this is dropped.
pub(super) struct Server {
    child: Child,
    pub(super) port: u16,
}

impl Server {
    /// Starts a server and waits until it listens on the port that its arguments name.
    pub(super) fn start(mut command: Command, port: u16) -> Option<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut server = Self { child: command.spawn().ok()?, port };
        let begun = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = server.child.try_wait().ok()?.is_some();
            if ended || begun.elapsed() > PATIENCE {
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Some(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Asked first: PostgreSQL leaves processes and shared memory behind when it is killed.
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::INT);
        }
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where a program is: on the path, or where Debian puts servers.
pub(super) fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut dirs: Vec<PathBuf> = std::env::split_paths(&path).collect();
    dirs.extend(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from));
    let mut versions: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .map(|entries| entries.filter_map(Result::ok).map(|entry| entry.path().join("bin")).collect())
        .unwrap_or_default();
    versions.sort();
    dirs.extend(versions.into_iter().rev());
    dirs.into_iter().map(|dir| dir.join(name)).find(|file| file.is_file())
}

/// A port that nobody has at the moment.
pub(super) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    listener.expect("a free port").port()
}

/// A new directory in `dir`.
pub(super) fn new_dir(dir: &Path, name: &str) -> PathBuf {
    let path = dir.join(name);
    std::fs::create_dir(&path).expect("a directory for a server");
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_installed_is_not_found() {
        assert!(find("sh").is_some());
        assert_eq!(find("a-server-that-nobody-has"), None);
    }
}
