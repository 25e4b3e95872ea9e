//! A disk that writes down what it has made durable, and can be held in the middle of it.

use std::any::Any;
use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use partita_hub::log::{Access, Disk, DiskFile, WriteMode};

/// Another disk, with a log of what was done to it. Clones are the same disk.
#[derive(Clone, Debug)]
pub(crate) struct LoggedDisk {
    under: Arc<dyn Disk>,
    log: Arc<Log>,
}

#[derive(Debug, Default)]
struct Log {
    state: Mutex<State>,
    released: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Writes in the order in which they returned.
    writes: Vec<Write>,
    /// Calls that make something durable do not return.
    held: bool,
    /// Such calls that have begun since then.
    waiting: usize,
}

#[derive(Debug)]
struct Write {
    file: usize,
    bytes: Vec<u8>,
    /// Whether a sync, or a write that is one, has returned since.
    durable: bool,
}

impl LoggedDisk {
    pub(crate) fn new(under: Arc<dyn Disk>) -> Self {
        Self { under, log: Arc::default() }
    }

    /// Whether a write with these bytes in it was durable when its call, or its sync, had returned.
    pub(crate) fn has_durable(&self, bytes: &[u8]) -> bool {
        let holds = |write: &Write| write.bytes.windows(bytes.len()).any(|part| part == bytes);
        self.log.state().writes.iter().any(|write| write.durable && holds(write))
    }

    /// Nothing becomes durable until this is dropped.
    pub(crate) fn hold(&self) -> Hold {
        self.log.state().held = true;
        Hold(self.log.clone())
    }

    /// Whether somebody waits for that.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.log.state().waiting > 0
    }
}

/// While it is there, the disk is held.
pub(crate) struct Hold(Arc<Log>);

impl Drop for Hold {
    fn drop(&mut self) {
        let mut state = self.0.state();
        (state.held, state.waiting) = (false, 0);
        self.0.released.notify_all();
    }
}

impl Log {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self) {
        let mut state = self.state();
        state.waiting += usize::from(state.held);
        while state.held {
            state = self.released.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[derive(Debug)]
struct LoggedFile {
    under: Arc<dyn DiskFile>,
    log: Arc<Log>,
    /// The same for all who opened it.
    id: usize,
    direct: bool,
}

impl Disk for LoggedDisk {
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        let under = self.under.open(path, access)?;
        let direct = access == Access::Write(WriteMode::Direct);
        // Segments are opened for writing once: that a handle is a file is enough here.
        let id = Arc::as_ptr(&under).cast::<()>().addr();
        Ok(Arc::new(LoggedFile { under, log: self.log.clone(), id, direct }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.under.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.under.remove(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.under.list(dir)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.under.create_dir(dir)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.under.remove_dir(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.under.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Any + Send + Sync>> {
        self.under.lock(path)
    }
}

impl DiskFile for LoggedFile {
    fn read_at(&self, buf: &mut [u8], pos: u64) -> io::Result<usize> {
        self.under.read_at(buf, pos)
    }

    fn write_at(&self, buf: &[u8], pos: u64) -> io::Result<usize> {
        if self.direct {
            self.log.wait();
        }
        let written = self.under.write_at(buf, pos)?;
        let bytes = buf[..written].to_vec();
        self.log.state().writes.push(Write { file: self.id, bytes, durable: self.direct });
        Ok(written)
    }

    fn sync(&self) -> io::Result<()> {
        // What is written while it runs is not covered by it.
        let covered = self.log.state().writes.len();
        self.log.wait();
        self.under.sync()?;
        let mut state = self.log.state();
        let writes = state.writes[..covered].iter_mut();
        writes.filter(|write| write.file == self.id).for_each(|write| write.durable = true);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        self.under.len()
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.under.allocate(len)
    }
}
