//! Hours of seeds, kept in a file: a run that was ended goes on where it was.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};

use partita_sim::{Summary, Theme};
use serde::{Deserialize, Serialize};

/// What was run, and what came of it so far.
pub(crate) struct Kept {
    file: Option<PathBuf>,
    state: State,
    /// Held as long as seeds are added: two runs on one file would overwrite each other.
    _lock: Option<File>,
}

#[derive(Serialize, Deserialize)]
struct State {
    /// The program that ran them: figures of different engines are not to be added up.
    program: u64,
    first: u64,
    theme: Option<Theme>,
    summary: Summary,
}

impl Kept {
    /// In memory only.
    pub(crate) fn nowhere() -> Self {
        let state = State { program: 0, first: 0, theme: None, summary: Summary::default() };
        Self { file: None, state, _lock: None }
    }

    /// What the file has of seeds from `first` on; nothing if there is none yet.
    pub(crate) fn open(file: &Path, first: u64, theme: Option<Theme>) -> io::Result<Self> {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", file.display()));
        let lock = File::create(beside(file, ".lock")).map_err(named)?;
        if lock.try_lock().is_err() {
            return Err(named(io::Error::other("another run keeps its seeds there")));
        }
        let mut hasher = DefaultHasher::new();
        fs::read(std::env::current_exe()?)?.hash(&mut hasher);
        let new = State { program: hasher.finish(), first, theme, summary: Summary::default() };
        let state = match fs::read(file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => new,
            Err(error) => return Err(named(error)),
            Ok(text) => {
                let state: State = serde_json::from_slice(&text)
                    .map_err(|error| invalid(file, &format!("cannot be read ({error})")))?;
                if (state.program, state.first, state.theme) != (new.program, first, theme) {
                    return Err(invalid(file, "was kept by another build or for other seeds"));
                }
                state
            }
        };
        let kept = Self { file: Some(file.to_owned()), state, _lock: Some(lock) };
        // A place that cannot be written to is better known before the first seed than after it.
        kept.write()?;
        Ok(kept)
    }

    pub(crate) fn summary(&self) -> &Summary {
        &self.state.summary
    }

    /// Adds the seeds that come next, and writes it down.
    pub(crate) fn add(&mut self, summary: Summary) -> io::Result<()> {
        self.state.summary.merge(summary);
        self.write()
    }

    fn write(&self) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        // A program that is killed while it writes leaves the old file.
        let new = beside(file, ".new");
        fs::write(&new, serde_json::to_vec(&self.state)?)
            .and_then(|()| fs::rename(&new, file))
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", file.display())))
    }

    pub(crate) fn into_summary(self) -> Summary {
        self.state.summary
    }
}

/// The file's name with something behind it.
fn beside(file: &Path, end: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(end);
    PathBuf::from(name)
}

fn invalid(file: &Path, why: &str) -> io::Error {
    let text =
        format!("{} {why}: remove it to start from the first seed, or name another file", file.display());
    io::Error::new(io::ErrorKind::InvalidData, text)
}
