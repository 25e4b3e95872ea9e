//! The official SDKs of Event Hubs: installed under the target directory, and run as processes of their own.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::out;
use crate::served::hub::{HUB, PARTITIONS};

/// A drain that takes longer never ends.
const PATIENCE: Duration = Duration::from_secs(120);

/// An SDK.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sdk {
    Rust,
    Python,
    JavaScript,
}

/// Batch size and prefetch; of the Rust SDK, which has no batches, connections and prefetch.
pub(super) type Setting = (u32, u32);

/// An SDK's program, ready to run.
pub(super) struct Program {
    sdk: Sdk,
    program: PathBuf,
    script: Option<PathBuf>,
}

impl Sdk {
    pub(super) const ALL: [Self; 3] = [Self::Rust, Self::Python, Self::JavaScript];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Rust => "Rust",
            Self::Python => "Python",
            Self::JavaScript => "JavaScript",
        }
    }

    pub(super) fn peer_name(self) -> &'static str {
        match self {
            Self::Rust => "Rust SDK, best",
            Self::Python => "Python SDK, best",
            Self::JavaScript => "JavaScript SDK, best",
        }
    }

    /// What it is tried with. The official defaults come first.
    pub(super) fn settings(self) -> [Setting; 4] {
        match self {
            Self::Rust => [(1, 300), (1, 3_000), (16, 300), (16, 3_000)],
            Self::Python => [(300, 300), (1_000, 2_000), (2_000, 5_000), (100, 1_000)],
            Self::JavaScript => [(10, 300), (300, 1_000), (1_000, 3_000), (3_000, 9_000)],
        }
    }

    pub(super) fn words(self, (first, prefetch): Setting) -> String {
        match self {
            Self::Rust => format!("{first} connections and prefetch {prefetch}"),
            _ => format!("batches of {first} and prefetch {prefetch}"),
        }
    }

    /// Makes its program runnable; what to install, if that does not work.
    pub(super) fn install(self) -> Result<Program, &'static str> {
        let benches = Path::new(env!("CARGO_MANIFEST_DIR"));
        let interop = benches.join("../interop");
        let target = target().join("benches");
        match self {
            Self::Rust => {
                let dir = target.join("rust");
                let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
                build.args(["build", "--quiet", "--release", "--locked", "--manifest-path"]);
                build.arg(benches.join("sdk/rust/Cargo.toml")).arg("--target-dir").arg(&dir);
                runs(&mut build, "install what its crates need, with network").map(|()| Program {
                    sdk: self,
                    program: dir.join("release/partita-sdk-drain"),
                    script: None,
                })
            }
            Self::Python => {
                let venv = target.join("python/venv");
                let python = venv.join("bin/python");
                once(&target.join("python"), &interop.join("python/requirements.lock"), |lock| {
                    let advice = "install Python 3.10 or newer, with venv";
                    runs(Command::new("python3").args(["-m", "venv"]).arg(&venv), advice)?;
                    let pip = ["-m", "pip", "install", "--quiet", "--require-hashes", "-r"];
                    runs(Command::new(&python).args(pip).arg(lock), "install pip, with network")
                })?;
                Ok(Program { sdk: self, program: python, script: Some(benches.join("sdk/python/drain.py")) })
            }
            Self::JavaScript => {
                let dir = target.join("js");
                let advice = "install Node.js 20 or newer and npm, with network";
                once(&dir, &interop.join("js/package-lock.json"), |lock| {
                    let copied = std::fs::copy(lock, dir.join("package-lock.json")).and_then(|_| {
                        std::fs::copy(interop.join("js/package.json"), dir.join("package.json"))
                    });
                    copied.map_err(|_| "make the target directory writable")?;
                    let npm = ["ci", "--no-audit", "--no-fund", "--loglevel=error"];
                    runs(Command::new("npm").args(npm).current_dir(&dir), advice)
                })?;
                // Beside its modules, where Node looks for them.
                let script = dir.join("drain.mjs");
                std::fs::copy(benches.join("sdk/js/drain.mjs"), &script).map_err(|_| advice)?;
                Ok(Program { sdk: self, program: "node".into(), script: Some(script) })
            }
        }
    }
}

/// Where this binary was built.
fn target() -> PathBuf {
    let own = std::env::current_exe().expect("the benchmark's own path");
    own.ancestors().nth(2).expect("a target directory").to_path_buf()
}

/// Installs unless what is there is of the same lock file.
fn once(
    dir: &Path,
    lock: &Path,
    install: impl FnOnce(&Path) -> Result<(), &'static str>,
) -> Result<(), &'static str> {
    let unreadable = "check out the whole repository";
    let wanted = std::fs::read(lock).map_err(|_| unreadable)?;
    let stamp = dir.join("installed");
    if std::fs::read(&stamp).is_ok_and(|there| there == wanted) {
        return Ok(());
    }
    std::fs::create_dir_all(dir).map_err(|_| "make the target directory writable")?;
    install(lock)?;
    std::fs::write(stamp, wanted).map_err(|_| "make the target directory writable")
}

fn runs(command: &mut Command, advice: &'static str) -> Result<(), &'static str> {
    match command.stdin(Stdio::null()).stdout(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        _ => Err(advice),
    }
}

impl Program {
    /// Events per second, of so many; none if it failed, which it says itself.
    pub(super) fn drain(&self, connection: &str, port: u16, events: u64, setting: Setting) -> Option<f64> {
        let mut command = Command::new(&self.program);
        command.args(&self.script).arg(connection);
        if self.sdk == Sdk::Rust {
            command.arg(format!("amqp://localhost:{port}"));
        }
        command.args([HUB, &PARTITIONS.to_string(), &events.to_string()]);
        let (first, prefetch) = setting;
        match self.sdk {
            Sdk::Rust => command.args([prefetch, first].map(|number| number.to_string())),
            _ => command.args([first, prefetch].map(|number| number.to_string())),
        };
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().ok()?;
        let began = Instant::now();
        // It prints one line at its end, which a pipe has room for.
        while child.try_wait().ok()?.is_none() {
            if began.elapsed() > PATIENCE {
                out::note(format!("the {} SDK did not end", self.sdk.name()));
                let _ = child.kill();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let output = child.wait_with_output().ok()?;
        String::from_utf8_lossy(&output.stdout).trim().parse().ok()
    }
}
