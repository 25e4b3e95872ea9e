//! `partita serve` in a process of its own.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// The name of the hub that is measured, and how many partitions it has.
pub(crate) const HUB: &str = "bench";
pub(crate) const PARTITIONS: u32 = 16;

/// A start or an end that takes longer never comes.
const PATIENCE: Duration = Duration::from_secs(60);

/// The binary, of the same sources and built in the same way.
#[derive(Clone, Debug)]
pub(crate) struct Binary(PathBuf);

impl Binary {
    /// Builds it, which is nothing to do if it is there.
    pub(crate) fn build() -> Self {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build.args(["build", "--quiet", "-p", "partita-cli"]).current_dir(env!("CARGO_MANIFEST_DIR"));
        if !cfg!(debug_assertions) {
            build.arg("--release");
        }
        let built = build.status().expect("cargo is there");
        assert!(built.success(), "`partita` cannot be built");
        let own = std::env::current_exe().expect("the benchmark's own path");
        Self(own.with_file_name("partita"))
    }
}

/// A hub that is served. It is killed when it is dropped.
#[derive(Debug)]
pub(crate) struct Hub {
    child: Child,
    pub(crate) port: u16,
    /// From the start of its process until clients can connect.
    pub(crate) ready: Duration,
}

impl Hub {
    /// Starts it on free ports, with its data in `dir`.
    pub(crate) fn start(binary: &Binary, dir: &Path, arguments: &[&str]) -> Self {
        let ready_file = dir.join("ready.json");
        let _ = std::fs::remove_file(&ready_file);
        let mut command = Command::new(&binary.0);
        command.args(["serve", "--quiet", "--port", "0", "--http-port", "0", "--hub"]);
        command.arg(format!("{HUB}:{PARTITIONS}")).args(arguments);
        command.arg("--data").arg(dir.join("data")).arg("--ready-file").arg(&ready_file);
        let begun = Instant::now();
        let child = command.stdin(Stdio::null()).spawn().expect("`partita` starts");
        let mut hub = Self { child, port: 0, ready: Duration::ZERO };
        while hub.port == 0 {
            assert!(begun.elapsed() < PATIENCE, "the hub does not become ready");
            std::thread::sleep(Duration::from_micros(200));
            hub.ready = begun.elapsed();
            hub.port = std::fs::read(&ready_file).ok().and_then(|json| port(&json)).unwrap_or(0);
        }
        hub
    }

    /// Bytes of memory that are its own and in use.
    pub(crate) fn memory(&self) -> f64 {
        memory(self.child.id())
    }

    /// The same, once it no longer changes.
    pub(crate) fn settled_memory(&self) -> f64 {
        let (mut last, begun) = (self.memory(), Instant::now());
        loop {
            std::thread::sleep(Duration::from_millis(500));
            let now = self.memory();
            if (now - last).abs() < 64e3 || begun.elapsed() > PATIENCE {
                return now;
            }
            last = now;
        }
    }

    /// Ends it in good order.
    pub(crate) fn stop(mut self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a process id");
        let _ = kill_process(pid, Signal::TERM);
        let _ = self.child.wait();
    }

    /// Ends it as a power cut would end the process.
    pub(crate) fn kill(self) {
        drop(self);
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The resident memory of a process, in bytes.
pub(crate) fn memory(pid: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    resident(&status).unwrap_or(f64::NAN)
}

fn resident(status: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: f64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib * 1024.0)
}

fn port(json: &[u8]) -> Option<u16> {
    let ready: serde_json::Value = serde_json::from_slice(json).ok()?;
    u16::try_from(ready.get("amqp_port")?.as_u64()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_and_memory_are_read_as_they_are_written() {
        assert_eq!(port(br#"{"amqp_port":40001,"http_port":5300}"#), Some(40_001));
        assert_eq!(port(b"{"), None);
        assert_eq!(resident("Name:\tpartita\nVmRSS:\t    8192 kB\n"), Some(8_192.0 * 1_024.0));
        assert!(memory(std::process::id()) > 0.0);
    }
}
