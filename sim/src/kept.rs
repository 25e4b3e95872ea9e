//! Hours of seeds, kept in a file: a run that was ended goes on where it was.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};

use partita_sim::{Summary, Theme};
use serde::{Deserialize, Serialize};

/// What was run, and what came of it so far.
pub(crate) struct Kept {
    file: Option<PathBuf>,
    state: State,
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
        Self { file: None, state: State { program: 0, first: 0, theme: None, summary: Summary::default() } }
    }

    /// What the file has of seeds from `first` on; nothing if there is none yet.
    pub(crate) fn open(file: &Path, first: u64, theme: Option<Theme>) -> io::Result<Self> {
        let mut hasher = DefaultHasher::new();
        fs::read(std::env::current_exe()?)?.hash(&mut hasher);
        let new = State { program: hasher.finish(), first, theme, summary: Summary::default() };
        let state = match fs::read(file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => new,
            Err(error) => return Err(error),
            Ok(text) => {
                let state: State = serde_json::from_slice(&text)
                    .map_err(|error| invalid(file, &format!("cannot be read ({error})")))?;
                if (state.program, state.first, state.theme) != (new.program, first, theme) {
                    return Err(invalid(file, "was kept by another build or for other seeds"));
                }
                state
            }
        };
        Ok(Self { file: Some(file.to_owned()), state })
    }

    pub(crate) fn summary(&self) -> &Summary {
        &self.state.summary
    }

    /// Adds the seeds that come next, and writes it down.
    pub(crate) fn add(&mut self, summary: Summary) -> io::Result<()> {
        self.state.summary.merge(summary);
        let Some(file) = &self.file else { return Ok(()) };
        // A program that is killed while it writes leaves the old file.
        let beside = {
            let mut name = file.as_os_str().to_owned();
            name.push(".new");
            PathBuf::from(name)
        };
        fs::write(&beside, serde_json::to_vec(&self.state)?)?;
        fs::rename(&beside, file)
    }

    pub(crate) fn into_summary(self) -> Summary {
        self.state.summary
    }
}

fn invalid(file: &Path, why: &str) -> io::Error {
    let text =
        format!("{} {why}: remove it to start from the first seed, or name another file", file.display());
    io::Error::new(io::ErrorKind::InvalidData, text)
}
