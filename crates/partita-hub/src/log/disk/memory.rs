//! A disk in memory, for hubs that are to leave nothing behind. It has no files: what it holds is gone with the process.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use super::{Access, Disk, DiskFile, WriteMode};

/// Memory is taken in pieces of this size, when something other than zeros is written to them. A segment that was
/// only prepared takes none.
const CHUNK: usize = 64 << 10;

/// A file system in memory. Clones are the same one.
///
/// It holds at most what it was told; beyond that it is full, as a disk would be. Reserved space counts, so that a commit
/// never meets the limit.
#[derive(Clone, Debug)]
pub struct MemoryDisk(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    names: Mutex<Names>,
    bytes: AtomicU64,
    bytes_max: u64,
}

#[derive(Debug, Default)]
struct Names {
    files: BTreeMap<PathBuf, Arc<Inode>>,
    dirs: BTreeSet<PathBuf>,
    locked: BTreeSet<PathBuf>,
}

#[derive(Debug)]
struct Inode {
    disk: Arc<Shared>,
    content: RwLock<Content>,
}

#[derive(Debug, Default)]
struct Content {
    len: u64,
    /// None = zeros.
    chunks: Vec<Option<Box<[u8]>>>,
}

impl MemoryDisk {
    /// An empty disk of this size.
    pub fn new(bytes_max: u64) -> Self {
        Self(Arc::new(Shared { names: Mutex::default(), bytes: AtomicU64::new(0), bytes_max }))
    }

    /// Bytes of all files, reserved ones included.
    pub fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Acquire)
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.0.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    fn reserve(&self, more: u64) -> io::Result<()> {
        let fits = |bytes: u64| bytes.checked_add(more).filter(|sum| *sum <= self.bytes_max);
        match self.bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits) {
            Ok(_) => Ok(()),
            Err(_) => Err(io::ErrorKind::StorageFull.into()),
        }
    }
}

impl Inode {
    fn grow(&self, content: &mut Content, len: u64) -> io::Result<()> {
        if len > content.len {
            self.disk.reserve(len - content.len)?;
            content.len = len;
            content.chunks.resize_with((len as usize).div_ceil(CHUNK), || None);
        }
        Ok(())
    }
}

impl Drop for Inode {
    fn drop(&mut self) {
        let len = self.content.get_mut().unwrap_or_else(PoisonError::into_inner).len;
        self.disk.bytes.fetch_sub(len, Ordering::AcqRel);
    }
}

/// Cuts a range of a file at the borders of its chunks: chunk, place in it, length.
fn pieces(pos: u64, len: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    let (mut at, end) = (pos as usize, pos as usize + len);
    std::iter::from_fn(move || {
        let (chunk, within) = (at / CHUNK, at % CHUNK);
        let piece = (CHUNK - within).min(end.saturating_sub(at));
        at += piece;
        (piece > 0).then_some((chunk, within, piece))
    })
}

impl Disk for MemoryDisk {
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        let mut names = self.names();
        match access {
            // Nothing here outlives the process, so there is nothing to write through to.
            Access::Write(WriteMode::Direct) => Err(io::ErrorKind::Unsupported.into()),
            Access::Create => {
                let inode = Arc::new(Inode { disk: self.0.clone(), content: RwLock::default() });
                names.files.insert(path.to_owned(), inode.clone());
                Ok(inode)
            }
            Access::Read | Access::Write(WriteMode::Buffered) => match names.files.get(path) {
                Some(inode) => Ok(inode.clone()),
                None => Err(io::ErrorKind::NotFound.into()),
            },
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut names = self.names();
        let inode = names.files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        names.files.insert(to.to_owned(), inode);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let removed = self.names().files.remove(path);
        removed.map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let names = self.names();
        if !names.dirs.contains(dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let inside = names.files.keys().chain(&names.dirs).filter(|path| path.parent() == Some(dir));
        Ok(inside
            .filter_map(|path| path.file_name())
            .map(|name| name.to_string_lossy().into_owned())
            .collect())
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.names().dirs.extend(dir.ancestors().map(Path::to_owned));
        Ok(())
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        if !self.list(dir)?.is_empty() {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        self.names().dirs.remove(dir);
        Ok(())
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Any + Send + Sync>> {
        if !self.names().files.contains_key(path) {
            self.open(path, Access::Create)?;
        }
        if !self.names().locked.insert(path.to_owned()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(Locked { disk: self.clone(), path: path.to_owned() }))
    }
}

struct Locked {
    disk: MemoryDisk,
    path: PathBuf,
}

impl Drop for Locked {
    fn drop(&mut self) {
        self.disk.names().locked.remove(&self.path);
    }
}

impl DiskFile for Inode {
    fn read_at(&self, buf: &mut [u8], pos: u64) -> io::Result<usize> {
        let content = self.content.read().unwrap_or_else(PoisonError::into_inner);
        let len = content.len.saturating_sub(pos).min(buf.len() as u64) as usize;
        let mut rest = &mut buf[..len];
        for (chunk, within, piece) in pieces(pos, len) {
            let (out, after) = rest.split_at_mut(piece);
            match content.chunks.get(chunk).and_then(Option::as_deref) {
                Some(bytes) => out.copy_from_slice(&bytes[within..within + piece]),
                None => out.fill(0),
            }
            rest = after;
        }
        Ok(len)
    }

    fn write_at(&self, buf: &[u8], pos: u64) -> io::Result<usize> {
        let mut content = self.content.write().unwrap_or_else(PoisonError::into_inner);
        self.grow(&mut content, pos + buf.len() as u64)?;
        let mut rest = buf;
        for (chunk, within, piece) in pieces(pos, buf.len()) {
            let (bytes, after) = rest.split_at(piece);
            let place = &mut content.chunks[chunk];
            if place.is_some() || bytes.iter().any(|byte| *byte != 0) {
                let chunk = place.get_or_insert_with(|| vec![0; CHUNK].into_boxed_slice());
                chunk[within..within + piece].copy_from_slice(bytes);
            }
            rest = after;
        }
        Ok(buf.len())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.content.read().unwrap_or_else(PoisonError::into_inner).len)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let mut content = self.content.write().unwrap_or_else(PoisonError::into_inner);
        self.grow(&mut content, len)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::read_full;
    use super::*;

    fn file(disk: &MemoryDisk, path: &str) -> Arc<dyn DiskFile> {
        disk.open(Path::new(path), Access::Create).expect("created")
    }

    proptest! {
        #[test]
        fn a_file_reads_as_an_array_of_bytes_would(
            writes in prop::collection::vec((0_usize..3 * CHUNK, 1_usize..2 * CHUNK, 0_u8..3), 1..12)
        ) {
            let disk = MemoryDisk::new(1 << 30);
            let file = file(&disk, "/a");
            let mut model = Vec::new();
            for (pos, len, byte) in writes {
                file.write_at(&vec![byte; len], pos as u64).expect("written");
                model.resize(model.len().max(pos + len), 0);
                model[pos..pos + len].fill(byte);
            }
            let mut read = vec![9; model.len() + 10];
            let len = read_full(&*file, &mut read, 0).expect("read");
            prop_assert_eq!(len, model.len());
            prop_assert_eq!(&read[..len], &model[..]);
            prop_assert_eq!(disk.bytes(), model.len() as u64);
        }
    }

    #[test]
    fn a_full_disk_says_so_and_what_goes_makes_room() {
        let disk = MemoryDisk::new(100);
        file(&disk, "/a").allocate(60).expect("fits");
        let full = file(&disk, "/b").allocate(41).expect_err("too much");
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
        disk.remove(Path::new("/a")).expect("there");
        file(&disk, "/b").write_at(&[1; 100], 0).expect("fits now");
        assert_eq!(disk.bytes(), 100);
    }

    #[test]
    fn zeros_take_no_memory() {
        let disk = MemoryDisk::new(1 << 30);
        let inode = Arc::new(Inode { disk: disk.0.clone(), content: RwLock::default() });
        inode.allocate(64 << 20).expect("fits");
        inode.write_at(&vec![0; 1 << 20], 0).expect("written");
        inode.write_at(b"x", 5 << 20).expect("written");
        let content = inode.content.read().expect("unpoisoned");
        assert_eq!(content.chunks.iter().flatten().count(), 1);
    }
}
