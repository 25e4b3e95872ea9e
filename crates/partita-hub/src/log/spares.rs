//! Segment files prepared in advance. Writing into zeroed blocks is half as expensive as growing a file, and a full
//! disk is met here, where no commit waits for it, rather than in the middle of a commit.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::aligned::AlignedBuf;
use super::disk::{Access, Disk, WriteMode, write_exact};

/// Files kept ready; retention unlinks what is more.
const READY_MAX: usize = 2;
const ZEROS: usize = 1 << 20;
/// How long a commit waits for a file being prepared before its producers are told to come back.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// A file that can become a segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Spare {
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
}

#[derive(Debug, Default)]
struct State {
    ready: VecDeque<Spare>,
    /// Why none can be prepared.
    failed: Option<String>,
    names: u64,
    /// Size of the next one.
    wanted: u64,
    /// Whether a thread prepares files, so that waiting makes sense.
    attended: bool,
}

/// The prepared files of a hub.
#[derive(Debug, Default)]
pub(crate) struct Spares {
    state: Mutex<State>,
    changed: Condvar,
}

impl Spares {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes files that are there when the hub is opened.
    pub(crate) fn adopt(&self, found: Vec<Spare>, names: u64) {
        let mut state = self.state();
        state.ready.extend(found);
        state.names = state.names.max(names);
    }

    /// Says how large the next segment will be.
    pub(crate) fn want(&self, bytes: u64) {
        self.state().wanted = bytes;
    }

    /// Says whether a thread prepares files.
    pub(crate) fn attend(&self, attended: bool) {
        self.state().attended = attended;
        self.changed.notify_all();
    }

    /// A file of at least `bytes_min`, or why there is none.
    pub(crate) fn take(&self, bytes_min: u64) -> Result<Spare, String> {
        let mut state = self.state();
        loop {
            let at = state.ready.iter().position(|spare| spare.bytes >= bytes_min);
            if let Some(spare) = at.and_then(|at| state.ready.remove(at)) {
                return Ok(spare);
            }
            if let Some(reason) = &state.failed {
                return Err(reason.clone());
            }
            if !state.attended {
                return Err("no segment is prepared".to_owned());
            }
            let waited = self.changed.wait_timeout(state, WAIT_MAX).unwrap_or_else(PoisonError::into_inner);
            state = waited.0;
            if waited.1.timed_out() {
                return Err("preparing a segment takes too long".to_owned());
            }
        }
    }

    /// The size of the file to prepare now, if one is missing.
    pub(crate) fn missing(&self) -> Option<u64> {
        let state = self.state();
        let enough = state.ready.iter().any(|spare| spare.bytes >= state.wanted);
        (!enough && state.wanted > 0).then_some(state.wanted)
    }

    /// Whether a file of this size is worth keeping, and if so its name.
    pub(crate) fn name_for(&self, dir: &Path, bytes: u64) -> Option<PathBuf> {
        let mut state = self.state();
        let room = state.ready.len() < READY_MAX && bytes >= state.wanted;
        room.then(|| {
            state.names += 1;
            dir.join(format!("spare-{:08x}", state.names))
        })
    }

    /// Adds a file that is ready.
    pub(crate) fn put(&self, spare: Spare) {
        let mut state = self.state();
        state.failed = None;
        state.ready.push_back(spare);
        self.changed.notify_all();
    }

    /// Says that none can be prepared for now.
    pub(crate) fn fail(&self, reason: String) {
        self.state().failed = Some(reason);
        self.changed.notify_all();
    }

    /// Prepares a file if one is missing: reserved, filled with zeros, durable under its name.
    pub(crate) fn prepare(&self, disk: &dyn Disk, dir: &Path, mode: WriteMode) -> io::Result<bool> {
        let Some(bytes) = self.missing() else { return Ok(false) };
        let path = {
            let mut state = self.state();
            // Files too small for the next segment make room.
            let wanted = state.wanted;
            let (keep, small): (VecDeque<_>, VecDeque<_>) =
                state.ready.drain(..).partition(|spare| spare.bytes >= wanted);
            state.ready = keep;
            state.names += 1;
            let names = state.names;
            drop(state);
            for spare in small {
                disk.remove(&spare.path)?;
            }
            dir.join(format!("spare-{names:08x}"))
        };
        let unfinished = path.with_extension("tmp");
        let made = fill(disk, &unfinished, bytes, mode);
        if made.is_err() {
            // Gives the space back; what remains is removed when the hub is opened again.
            let _ = disk.remove(&unfinished);
        }
        made?;
        disk.rename(&unfinished, &path)?;
        disk.sync_dir(dir)?;
        self.put(Spare { path, bytes });
        Ok(true)
    }
}

fn fill(disk: &dyn Disk, path: &Path, bytes: u64, mode: WriteMode) -> io::Result<()> {
    let created = disk.open(path, Access::Create)?;
    created.allocate(bytes)?;
    let file = match mode {
        WriteMode::Direct => disk.open(path, Access::Write(WriteMode::Direct))?,
        WriteMode::Buffered => created.clone(),
    };
    let mut zeros = AlignedBuf::with_capacity(ZEROS);
    zeros.extend(&vec![0; ZEROS]);
    let mut pos = 0;
    while pos < bytes {
        let len = (bytes - pos).min(ZEROS as u64);
        write_exact(&*file, &zeros.as_slice()[..len as usize], pos)?;
        pos += len;
    }
    created.sync()
}
