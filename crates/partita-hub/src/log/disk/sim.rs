//! A disk in memory that forgets what was not synced. Its rules are harsher than any real one's: at a power cut every
//! 512-byte sector that was written and not synced holds any of its versions, names change in any combination, and a
//! failed sync leaves the page cache showing bytes that never reach the platter.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fastrand::Rng;

use super::{Access, Disk, DiskFile, WriteMode};

const SECTOR: usize = 512;

/// What goes wrong at a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The call fails with an I/O error; part of what it wrote may be on disk.
    Eio,
    /// The call fails for want of space.
    Enospc,
    /// A write stops part of the way.
    ShortWrite,
    /// The power goes off during the call; every later one fails until [`SimDisk::reboot`].
    PowerOff,
}

/// Which call a fault hits: calls that change the disk are counted from 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// The call with this number.
    Call(u64),
    /// Every call that reserves space, until cleared.
    EveryAllocation,
    /// Every write, until cleared.
    EveryWrite,
}

/// A disk in memory. Clones are the same disk.
#[derive(Clone, Debug)]
pub struct SimDisk(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    rng: Rng,
    files: Vec<Inode>,
    /// Names as programs see them, and as they are after a power cut.
    names: BTreeMap<PathBuf, usize>,
    durable_names: BTreeMap<PathBuf, usize>,
    dirs: BTreeSet<PathBuf>,
    unsynced_names: Vec<NameChange>,
    locked: BTreeSet<PathBuf>,
    calls: u64,
    faults: Vec<(When, Fault)>,
    off: bool,
    direct: bool,
    /// How many files can still be opened.
    files_left: Option<u32>,
}

#[derive(Debug, Default)]
struct Inode {
    now: Vec<u8>,
    durable: Vec<u8>,
    unsynced: Vec<(usize, Vec<u8>)>,
}

#[derive(Debug)]
struct NameChange {
    add: Option<(PathBuf, usize)>,
    remove: Option<PathBuf>,
}

impl NameChange {
    /// The directory whose names change; nothing moves from one to another here.
    fn dir(&self) -> Option<&Path> {
        let name = self.add.as_ref().map(|(name, _)| name).or(self.remove.as_ref());
        name.and_then(|name| name.parent())
    }
}

#[derive(Debug)]
struct SimFile {
    disk: SimDisk,
    inode: usize,
    synced: bool,
    writable: bool,
}

impl SimDisk {
    /// An empty disk whose misbehaviour follows from `seed`.
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            rng: Rng::with_seed(seed),
            files: Vec::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            dirs: BTreeSet::new(),
            unsynced_names: Vec::new(),
            locked: BTreeSet::new(),
            calls: 0,
            faults: Vec::new(),
            off: false,
            direct: true,
            files_left: None,
        })))
    }

    /// Whether the disk takes direct writes; it does unless told otherwise.
    pub fn set_direct(&self, direct: bool) {
        self.state().direct = direct;
    }

    /// How many more files the system lets be opened, directories included; `None` for any number. Files that are open stay
    /// open.
    pub fn set_files_left(&self, files: Option<u32>) {
        self.state().files_left = files;
    }

    /// Plans a fault.
    pub fn plan(&self, when: When, fault: Fault) {
        self.state().faults.push((when, fault));
    }

    /// Forgets all planned faults.
    pub fn clear_faults(&self) {
        self.state().faults.clear();
    }

    /// How many calls that change the disk were made.
    pub fn calls(&self) -> u64 {
        self.state().calls
    }

    /// Whether the power is off.
    pub fn is_off(&self) -> bool {
        self.state().off
    }

    /// Cuts the power, if it is not off, and turns it on again: what was not synced is lost or kept at random.
    pub fn reboot(&self) {
        let state = &mut *self.state();
        for change in std::mem::take(&mut state.unsynced_names) {
            if state.rng.bool() {
                apply(&mut state.durable_names, change);
            }
        }
        state.names = state.durable_names.clone();
        let parents = state.names.keys().flat_map(|path| path.ancestors().skip(1).map(Path::to_owned));
        state.dirs.extend(parents);
        for file in &mut state.files {
            file.lose_power(&mut state.rng);
        }
        state.locked.clear();
        state.faults.clear();
        state.off = false;
    }

    /// Ends the process but not the machine, also at a planned power cut: what was written stays, synced or not.
    pub fn kill(&self) {
        let mut state = self.state();
        state.locked.clear();
        state.faults.clear();
        state.off = false;
    }

    /// The files there are.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.state().names.keys().cloned().collect()
    }

    /// The content of a file.
    pub fn content(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.state();
        state.names.get(path).map(|inode| state.files[*inode].now.clone())
    }

    /// Replaces the content of a file, durably, making it if need be.
    pub fn set_content(&self, path: &Path, content: Vec<u8>) {
        let mut state = self.state();
        let inode = state.names.get(path).copied().unwrap_or_else(|| {
            state.files.push(Inode::default());
            let inode = state.files.len() - 1;
            state.names.insert(path.to_owned(), inode);
            state.durable_names.insert(path.to_owned(), inode);
            inode
        });
        state.files[inode] = Inode { durable: content.clone(), now: content, unsynced: Vec::new() };
    }

    /// Takes a file away, durably, as somebody else would.
    pub fn take_away(&self, path: &Path) {
        let mut state = self.state();
        state.names.remove(path);
        state.durable_names.remove(path);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change_name(&self, change: NameChange) -> io::Result<()> {
        let mut state = self.state();
        let fault = state.next_call(false, false)?;
        // For want of space nothing happens; after another error it may have happened.
        if fault != Some(Fault::Enospc) {
            apply(&mut state.names, NameChange { add: change.add.clone(), remove: change.remove.clone() });
            state.unsynced_names.push(change);
        }
        state.finish(fault)
    }
}

fn apply(names: &mut BTreeMap<PathBuf, usize>, change: NameChange) {
    if let Some(name) = change.remove {
        names.remove(&name);
    }
    if let Some((name, inode)) = change.add {
        names.insert(name, inode);
    }
}

fn off() -> io::Error {
    io::Error::other("the power is off")
}

impl State {
    /// Takes a descriptor, if there is one.
    fn open_file(&mut self) -> io::Result<()> {
        const EMFILE: i32 = 24;
        match &mut self.files_left {
            Some(0) => Err(io::Error::from_raw_os_error(EMFILE)),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Counts a call that changes the disk and tells what goes wrong with it.
    fn next_call(&mut self, allocation: bool, write: bool) -> io::Result<Option<Fault>> {
        if self.off {
            return Err(off());
        }
        let call = self.calls;
        self.calls += 1;
        let hit = |when: &When| match when {
            When::Call(planned) => *planned == call,
            When::EveryAllocation => allocation,
            When::EveryWrite => write,
        };
        Ok(self.faults.iter().find(|(when, _)| hit(when)).map(|(_, fault)| *fault))
    }

    fn finish(&mut self, fault: Option<Fault>) -> io::Result<()> {
        match fault {
            None | Some(Fault::ShortWrite) => Ok(()),
            Some(Fault::Eio) => Err(io::Error::other("simulated I/O error")),
            Some(Fault::Enospc) => Err(io::ErrorKind::StorageFull.into()),
            Some(Fault::PowerOff) => {
                self.off = true;
                Err(off())
            }
        }
    }
}

impl Inode {
    fn write(&mut self, pos: usize, bytes: &[u8]) {
        let end = pos + bytes.len();
        if self.now.len() < end {
            self.now.resize(end, 0);
        }
        self.now[pos..end].copy_from_slice(bytes);
        self.unsynced.push((pos, bytes.to_vec()));
    }

    fn sync(&mut self) {
        for (pos, bytes) in self.unsynced.drain(..) {
            let end = pos + bytes.len();
            if self.durable.len() < end {
                self.durable.resize(end, 0);
            }
            self.durable[pos..end].copy_from_slice(&bytes);
        }
    }

    /// Makes a range durable, as a direct write does, and nothing beside it: what else the page cache holds stays there.
    fn sync_range(&mut self, pos: usize, len: usize) {
        let end = pos + len;
        if self.durable.len() < end {
            self.durable.resize(end, 0);
        }
        self.durable[pos..end].copy_from_slice(&self.now[pos..end]);
        for (at, bytes) in std::mem::take(&mut self.unsynced) {
            let before = pos.saturating_sub(at).min(bytes.len());
            let after = end.saturating_sub(at).min(bytes.len());
            let parts = [(at, &bytes[..before]), (at + after, &bytes[after..])];
            self.unsynced
                .extend(parts.iter().filter(|part| !part.1.is_empty()).map(|(at, b)| (*at, b.to_vec())));
        }
    }

    /// Every unsynced sector ends up at any one of its versions.
    fn settle(&mut self, rng: &mut Rng) {
        let mut writes: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (i, (pos, bytes)) in self.unsynced.iter().enumerate() {
            for sector in pos / SECTOR..(pos + bytes.len()).div_ceil(SECTOR) {
                writes.entry(sector).or_default().push(i);
            }
        }
        // Most cuts either lose nearly everything or nearly nothing; both ends find other faults than the middle.
        let keep = rng.f64();
        for (sector, versions) in writes {
            let kept = versions.iter().filter(|_| rng.f64() < keep).count();
            for i in &versions[..kept] {
                let (pos, bytes) = &self.unsynced[*i];
                let from = (sector * SECTOR).max(*pos);
                let to = ((sector + 1) * SECTOR).min(pos + bytes.len());
                if self.durable.len() < to {
                    self.durable.resize(to, 0);
                }
                self.durable[from..to].copy_from_slice(&bytes[from - pos..to - pos]);
            }
        }
        self.unsynced.clear();
    }

    fn lose_power(&mut self, rng: &mut Rng) {
        self.settle(rng);
        self.now.clone_from(&self.durable);
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        let found = self.state().names.get(path).copied();
        if self.is_off() {
            return Err(off());
        }
        self.state().open_file()?;
        let direct = access == Access::Write(WriteMode::Direct);
        if direct && !self.state().direct {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let inode = match (access, found) {
            (Access::Create, _) => {
                let inode = {
                    let mut state = self.state();
                    state.files.push(Inode::default());
                    state.files.len() - 1
                };
                self.change_name(NameChange { add: Some((path.to_owned(), inode)), remove: None })?;
                inode
            }
            (_, Some(inode)) => inode,
            (_, None) => return Err(io::ErrorKind::NotFound.into()),
        };
        let writable = access != Access::Read;
        Ok(Arc::new(SimFile { disk: self.clone(), inode, synced: direct, writable }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let inode = self.state().names.get(from).copied().ok_or(io::ErrorKind::NotFound)?;
        self.change_name(NameChange { add: Some((to.to_owned(), inode)), remove: Some(from.to_owned()) })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        if !self.state().names.contains_key(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.change_name(NameChange { add: None, remove: Some(path.to_owned()) })
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let state = self.state();
        if state.off {
            return Err(off());
        }
        if !state.dirs.contains(dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let all = state.names.keys().chain(&state.dirs);
        let here = all.filter(|path| path.parent() == Some(dir));
        Ok(here.filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned())).collect())
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        // Made durable at once: the log creates directories only before it acknowledges anything.
        self.state().dirs.extend(dir.ancestors().map(Path::to_owned));
        Ok(())
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        if !self.list(dir)?.is_empty() {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        // May come back at a power cut in reality; a directory that is made again then is the same.
        self.state().dirs.remove(dir);
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let state = &mut *self.state();
        state.open_file()?;
        let fault = state.next_call(false, false)?;
        if fault.is_none() {
            // Names of other directories stay as they are.
            let here = |change: &mut NameChange| change.dir() == Some(dir);
            for change in state.unsynced_names.extract_if(.., here) {
                apply(&mut state.durable_names, change);
            }
        }
        state.finish(fault)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Any + Send + Sync>> {
        if !self.state().names.contains_key(path) {
            self.open(path, Access::Create)?;
        }
        if !self.state().locked.insert(path.to_owned()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(SimLock { disk: self.clone(), path: path.to_owned() }))
    }

    fn lock_dir(&self, dir: &Path) -> io::Result<Box<dyn Any + Send + Sync>> {
        if !self.state().locked.insert(dir.to_owned()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(SimLock { disk: self.clone(), path: dir.to_owned() }))
    }
}

struct SimLock {
    disk: SimDisk,
    path: PathBuf,
}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.disk.state().locked.remove(&self.path);
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, buf: &mut [u8], pos: u64) -> io::Result<usize> {
        let state = self.disk.state();
        if state.off {
            return Err(off());
        }
        let from = state.files[self.inode].now.get(pos as usize..).unwrap_or(&[]);
        let read = from.len().min(buf.len());
        buf[..read].copy_from_slice(&from[..read]);
        Ok(read)
    }

    fn write_at(&self, buf: &[u8], pos: u64) -> io::Result<usize> {
        if !self.writable {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let aligned = [pos as usize, buf.len(), buf.as_ptr().addr()].iter().all(|n| n.is_multiple_of(SECTOR));
        if self.synced && !aligned {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let state = &mut *self.disk.state();
        let fault = state.next_call(false, true)?;
        let len = match fault {
            Some(Fault::ShortWrite) => state.rng.usize(..buf.len()),
            Some(Fault::Enospc) => 0,
            _ => buf.len(),
        };
        let file = &mut state.files[self.inode];
        file.write(pos as usize, &buf[..len]);
        match fault {
            None if self.synced => file.sync_range(pos as usize, len),
            // A direct write that failed has put some of its sectors on the disk, and nothing will add the others.
            Some(Fault::Eio | Fault::ShortWrite) if self.synced => file.lose_power(&mut state.rng),
            _ => {}
        }
        state.finish(fault).map(|()| len)
    }

    fn sync(&self) -> io::Result<()> {
        let state = &mut *self.disk.state();
        let fault = state.next_call(false, false)?;
        let file = &mut state.files[self.inode];
        match fault {
            None | Some(Fault::ShortWrite) => file.sync(),
            // The kernel marks the pages clean: reads still show them, a later sync does not write them.
            Some(Fault::Eio | Fault::Enospc) => file.settle(&mut state.rng),
            Some(Fault::PowerOff) => {}
        }
        state.finish(fault)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.state().files[self.inode].now.len() as u64)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let state = &mut *self.disk.state();
        let fault = state.next_call(true, false)?;
        if fault.is_none() {
            let file = &mut state.files[self.inode];
            file.now.resize(len as usize, 0);
            file.durable.resize(len as usize, 0);
        }
        state.finish(fault)
    }
}
