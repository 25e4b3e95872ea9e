//! What bears witness to a hub from outside of its directory: a record of what it acknowledged, and a copy of its
//! description. A start compares the hub with them, so that events, files or a whole hub that went away are noticed.
//!
//! The record is written after what it speaks of is durable, about once a second, so it never says too much after a
//! power cut and may say too little. It has two slots that are written in turn: a torn write leaves the other one.

use std::io;
use std::path::{Path, PathBuf};

use super::disk::{Access, Disk, WriteMode, read_whole, write_exact};
use super::error::OpenError;
use super::format::{ACKNOWLEDGED_BYTES_MAX, Acknowledged, BLOCK, StoreId};
use super::segment::number;
use super::store::hub_dir;

const WITNESS: &str = "witness";
const RECORD: &str = "ack";
const META: &str = "meta";
const SLOTS: u64 = 2;

/// The data directory of a hub's directory.
pub(crate) fn data_dir(hub_dir: &Path) -> &Path {
    hub_dir.ancestors().nth(2).unwrap_or(hub_dir)
}

/// Where witness is kept for the hubs of a data directory.
pub(crate) fn witness_dir(data: &Path) -> PathBuf {
    data.join(WITNESS)
}

fn file(hub_dir: &Path, kind: &str) -> PathBuf {
    let hub = hub_dir.file_name().unwrap_or_default().to_string_lossy();
    witness_dir(data_dir(hub_dir)).join(format!("{hub}.{kind}"))
}

/// The record of what a hub acknowledged.
pub(crate) fn record_path(hub_dir: &Path) -> PathBuf {
    file(hub_dir, RECORD)
}

/// The copy of a hub's description.
pub(crate) fn meta_path(hub_dir: &Path) -> PathBuf {
    file(hub_dir, META)
}

/// The hubs whose description is kept, in order.
pub(crate) fn hubs(disk: &dyn Disk, data: &Path) -> io::Result<Vec<u64>> {
    let names = match disk.list(&witness_dir(data)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        names => names?,
    };
    let known = |name: &String| number(name.strip_suffix(META)?.strip_suffix('.')?);
    let mut ids: Vec<u64> = names.iter().filter_map(known).collect();
    ids.sort_unstable();
    Ok(ids)
}

/// Our files for one hub that are there.
pub(crate) fn files(disk: &dyn Disk, hub_dir: &Path) -> io::Result<Vec<PathBuf>> {
    let dir = witness_dir(data_dir(hub_dir));
    let hub = format!("{}.", hub_dir.file_name().unwrap_or_default().to_string_lossy());
    let names = match disk.list(&dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        names => names?,
    };
    Ok(names.iter().filter(|name| name.starts_with(&hub)).map(|name| dir.join(name)).collect())
}

/// Forgets a hub that was deleted, durably.
pub(crate) fn forget(disk: &dyn Disk, hub_dir: &Path) -> io::Result<()> {
    let files = files(disk, hub_dir)?;
    for path in &files {
        match disk.remove(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    if files.is_empty() { Ok(()) } else { disk.sync_dir(&witness_dir(data_dir(hub_dir))) }
}

/// Forgets all hubs of a data directory, durably, also those that have no directory any more.
pub(crate) fn forget_all(disk: &dyn Disk, data: &Path) -> io::Result<()> {
    let names = match disk.list(&witness_dir(data)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        names => names?,
    };
    let mut hubs: Vec<u64> = names.iter().filter_map(|name| number(name.split('.').next()?)).collect();
    hubs.sort_unstable();
    hubs.dedup();
    hubs.into_iter().try_for_each(|hub| forget(disk, &hub_dir(data, hub)))
}

/// Puts a file in the place of another one, so that after a power cut one of the two is there, whole.
pub(crate) fn replace(disk: &dyn Disk, path: &Path, bytes: &[u8], room: u64) -> io::Result<()> {
    let dir = path.parent().unwrap_or(path);
    disk.create_dir(dir)?;
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".tmp");
    let unfinished = PathBuf::from(unfinished);
    let made = disk.open(&unfinished, Access::Create).and_then(|file| {
        if room > 0 {
            file.allocate(room)?;
        }
        write_exact(&*file, bytes, 0)?;
        file.sync()
    });
    if made.is_err() {
        // Gives the space back.
        let _ = disk.remove(&unfinished);
    }
    made?;
    disk.rename(&unfinished, path)?;
    disk.sync_dir(dir)
}

/// The file of a hub's record.
#[derive(Debug)]
pub(crate) struct RecordFile {
    path: PathBuf,
    last: Option<Acknowledged>,
    /// Whether the file was made in this life. The first write of each makes it anew: a failed sync of an earlier one may
    /// have left bytes in the page cache that look durable and are not.
    made: bool,
    /// Where the next record goes: not where the last one is.
    slot: u64,
}

impl RecordFile {
    /// Reads what is there.
    pub(crate) fn load(disk: &dyn Disk, hub_dir: &Path, store: StoreId, hub: u64) -> Result<Self, OpenError> {
        let path = record_path(hub_dir);
        let bytes = match read_whole(disk, &path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            bytes => bytes.map_err(|error| OpenError::io("reading", &path, error))?,
        };
        let slots = bytes.chunks(ACKNOWLEDGED_BYTES_MAX).take(SLOTS as usize);
        let last = slots.filter_map(Acknowledged::decode).max_by_key(|record| record.number);
        match &last {
            None if !bytes.is_empty() => return Err(OpenError::Damaged { path }),
            Some(last) if (last.store, last.hub) != (store, hub) => return Err(OpenError::Foreign { path }),
            _ => {}
        }
        Ok(Self { path, last, made: false, slot: 0 })
    }

    /// One without a record, whatever is there.
    pub(crate) fn blank(hub_dir: &Path) -> Self {
        Self { path: record_path(hub_dir), last: None, made: false, slot: 0 }
    }

    /// The last record.
    pub(crate) fn last(&self) -> Option<&Acknowledged> {
        self.last.as_ref()
    }

    /// Writes a record, durably, if it says more than the last one.
    pub(crate) fn write(&mut self, disk: &dyn Disk, mut record: Acknowledged) -> io::Result<()> {
        if self.made && self.last.as_ref().is_some_and(|last| last.says_as_much_as(&record)) {
            return Ok(());
        }
        record.number = self.last.as_ref().map_or(1, |last| last.number + 1);
        let mut bytes = record.encode();
        bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
        if self.made {
            match disk.open(&self.path, Access::Write(WriteMode::Buffered)) {
                // Somebody removed it; what it says is known here.
                Err(error) if error.kind() == io::ErrorKind::NotFound => self.made = false,
                file => {
                    let file = file?;
                    write_exact(&*file, &bytes, self.slot * ACKNOWLEDGED_BYTES_MAX as u64)?;
                    file.sync()?;
                }
            }
        }
        if !self.made {
            replace(disk, &self.path, &bytes, SLOTS * ACKNOWLEDGED_BYTES_MAX as u64)?;
            (self.made, self.slot) = (true, 0);
        }
        self.slot = (self.slot + 1) % SLOTS;
        self.last = Some(record);
        Ok(())
    }
}
