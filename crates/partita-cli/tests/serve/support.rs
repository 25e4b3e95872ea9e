//! The real binary on free ports, in directories of its own, ended with the test.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// Long enough for a machine that does a lot else.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The binary, without what the surroundings say.
pub(crate) fn partita(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_partita"));
    command.args(args);
    for name in [
        "RUST_LOG",
        "NO_COLOR",
        "PARTITA_DATA",
        "PARTITA_HTTP",
        "PARTITA_KEY_FILE",
        "PARTITA_LISTEN",
        "PARTITA_PROXY",
        "PARTITA_CONNECTION_STRING",
        "PARTITA_STORE",
        "EVENTHUBS_CONNECTION_STRING",
        "EVENT_HUB_CONNECTION_STRING",
    ] {
        command.env_remove(name);
    }
    command
}

/// Waits for a condition.
pub(crate) fn wait_for<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(Instant::now() < until, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A hub that runs.
pub(crate) struct Hub {
    child: Child,
    dir: TempDir,
    pub(crate) ready: Value,
}

impl Hub {
    /// One on free ports, with data in a directory of its own.
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), args)
    }

    /// The same, in a directory that may have been used before.
    pub(crate) fn start_in(dir: TempDir, args: &[&str]) -> Self {
        let data = dir.path().join("data");
        let mut command = serve(dir.path(), args);
        if !args.contains(&"--memory") {
            command.arg("--data").arg(data);
        }
        Self::run(command, dir)
    }

    /// A command that was made by hand.
    pub(crate) fn run(mut command: Command, dir: TempDir) -> Self {
        let mut child =
            command.stdin(Stdio::null()).stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let file = dir.path().join("ready.json");
        let ready = wait_for("the ready file", || {
            if child.try_wait().unwrap().is_some() {
                let mut said = String::new();
                child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
                panic!("the hub ended: {said}");
            }
            let text = std::fs::read_to_string(&file).ok()?;
            Some(serde_json::from_str(&text).expect("whole as soon as it is there"))
        });
        Self { child, dir, ready }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn port(&self, name: &str) -> u16 {
        self.ready[name].as_u64().unwrap_or_else(|| panic!("{name} in {}", self.ready)) as u16
    }

    pub(crate) fn http(&self) -> String {
        format!("http://127.0.0.1:{}", self.port("http_port"))
    }

    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        let mut response = ureq::get(format!("{}{path}", self.http())).call().unwrap();
        (response.status().as_u16(), response.body_mut().read_to_string().unwrap())
    }

    pub(crate) fn get_json(&self, path: &str) -> Value {
        serde_json::from_str(&self.get(path).1).unwrap()
    }

    /// A command for this hub, and what came of it.
    pub(crate) fn command(&self, args: &[&str]) -> Output {
        partita(args).arg("--http").arg(self.http()).output().unwrap()
    }

    /// What a command printed; it must succeed.
    pub(crate) fn says(&self, args: &[&str]) -> String {
        let output = self.command(args);
        assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.child.id().cast_signed()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// The memory that it has, in bytes.
    #[cfg(target_os = "linux")]
    pub(crate) fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        wait_for("the end of the hub", || self.child.try_wait().unwrap())
    }

    /// Stops it in good order; gives back its directory and what it said.
    pub(crate) fn stop(mut self) -> (TempDir, String) {
        self.signal(rustix::process::Signal::TERM);
        let status = self.wait();
        let said = self.said();
        assert!(status.success(), "{status}: {said}");
        (std::mem::replace(&mut self.dir, tempfile::tempdir().unwrap()), said)
    }

    /// The directory of a hub that has ended, for the next one.
    pub(crate) fn leave(mut self) -> TempDir {
        let _ = std::fs::remove_file(self.path("ready.json"));
        std::mem::replace(&mut self.dir, tempfile::tempdir().unwrap())
    }

    /// What it said on stderr, once it has ended.
    pub(crate) fn said(&mut self) -> String {
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        said
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `partita serve` on free ports, with a ready file in the directory.
pub(crate) fn serve(dir: &Path, args: &[&str]) -> Command {
    let mut command = partita(&["serve", "--port", "0", "--http-port", "0", "--tls-port", "0"]);
    command
        .arg("--ready-file")
        .arg(dir.join("ready.json"))
        .args(args)
        .env("HOME", dir)
        .env_remove("XDG_DATA_HOME");
    command
}

/// What a start that cannot go on says, and its exit code. It says one line, and it does not leave a ready file.
pub(crate) fn refused(command: &mut Command) -> (i32, String) {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = text(&output.stderr);
    assert!(output.stdout.is_empty());
    (output.status.code().unwrap_or_else(|| panic!("ended by a signal: {said}")), said)
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}
