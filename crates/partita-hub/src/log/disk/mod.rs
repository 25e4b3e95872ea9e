//! File access, behind a small trait so that tests can lose power at any sync point.

mod kept;
mod memory;
mod os;
mod overlay;
#[cfg(any(test, feature = "testkit"))]
mod sim;

use std::any::Any;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

pub use memory::MemoryDisk;
pub use os::OsDisk;
pub(crate) use overlay::OverlayDisk;
#[cfg(any(test, feature = "testkit"))]
pub use sim::{Fault, SimDisk, When};

use super::aligned::AlignedBuf;
use super::format::BLOCK;

/// How a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// To read, through the page cache.
    Read,
    /// A new file, or an old one made empty, to write through the page cache.
    Create,
    /// An existing file, to write.
    Write(WriteMode),
}

/// How the log makes its writes durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteMode {
    /// `O_DIRECT | O_DSYNC`: a write that returned is durable, and nothing passes through the page cache.
    Direct,
    /// Writes to the page cache, each commit followed by a sync. For file systems without direct I/O.
    Buffered,
}

impl fmt::Display for WriteMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Direct => "direct",
            Self::Buffered => "buffered",
        })
    }
}

/// The file system.
pub trait Disk: Send + Sync + fmt::Debug {
    /// Opens a file.
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>>;
    /// Renames a file, replacing the one that has the new name. Durable after [`Disk::sync_dir`].
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// The names of the files and directories in a directory.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// Makes a directory and those above it, durably.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;
    /// Removes an empty directory. [`io::ErrorKind::DirectoryNotEmpty`] if it is not.
    fn remove_dir(&self, dir: &Path) -> io::Result<()>;
    /// Makes what was created, renamed and removed in a directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Opens or creates a file and locks it against other processes until the returned guard is dropped.
    /// [`io::ErrorKind::WouldBlock`] if another process holds it.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Any + Send + Sync>>;
    /// Locks a directory against other processes, as [`Disk::lock`] does a file: a lock on a file in it does not help once
    /// the file was replaced by a copy. Where directories cannot be locked, this does nothing.
    fn lock_dir(&self, dir: &Path) -> io::Result<Box<dyn Any + Send + Sync>> {
        let _ = dir;
        Ok(Box::new(()))
    }
    /// Keeps hold of a file or directory, to find out later whether its name still leads to it. Where that cannot be
    /// known, it always does.
    fn hold(&self, path: &Path) -> io::Result<Box<dyn Held>> {
        let _ = path;
        Ok(Box::new(AlwaysThere))
    }
}

/// A file or directory that is kept hold of.
pub trait Held: Send + Sync + fmt::Debug {
    /// Whether this name leads to it. [`io::ErrorKind::NotFound`] if it leads nowhere.
    fn is_at(&self, path: &Path) -> io::Result<bool>;
}

#[derive(Debug)]
struct AlwaysThere;

impl Held for AlwaysThere {
    fn is_at(&self, _: &Path) -> io::Result<bool> {
        Ok(true)
    }
}

/// An open file.
pub trait DiskFile: Send + Sync + fmt::Debug {
    /// Reads at a position; fewer bytes than asked at the end of the file.
    fn read_at(&self, buf: &mut [u8], pos: u64) -> io::Result<usize>;
    /// Writes at a position, in one call; may write fewer bytes than given.
    fn write_at(&self, buf: &[u8], pos: u64) -> io::Result<usize>;
    /// Makes all that was written durable.
    fn sync(&self) -> io::Result<()>;
    /// The length of the file.
    fn len(&self) -> io::Result<u64>;
    /// Whether the file is empty.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Reserves space up to `len` and makes the file that long.
    fn allocate(&self, len: u64) -> io::Result<()>;
    /// Asks for a range to be read ahead of its use.
    fn will_need(&self, pos: u64, len: u64) {
        let _ = (pos, len);
    }
    /// Asks for nothing to be read ahead.
    fn random_access(&self) {}
}

/// Whether there is no space, rather than anything wrong.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Whether the system has no descriptor to give for now, rather than anything wrong: `EMFILE`, `ENFILE`.
pub(crate) fn is_out_of_files(error: &io::Error) -> bool {
    let codes: &[i32] = if cfg!(windows) { &[4] } else { &[23, 24] };
    error.raw_os_error().is_some_and(|code| codes.contains(&code))
}

/// Writes all of `buf` or fails. A short write is a failure: what of it is durable is not known.
pub(crate) fn write_exact(file: &dyn DiskFile, buf: &[u8], pos: u64) -> io::Result<()> {
    loop {
        match file.write_at(buf, pos) {
            Ok(written) if written == buf.len() => return Ok(()),
            Ok(written) => {
                let text = format!("wrote {written} of {} bytes", buf.len());
                return Err(io::Error::new(io::ErrorKind::WriteZero, text));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Reads until `buf` is full or the file ends; returns how much was read.
pub(crate) fn read_full(file: &dyn DiskFile, buf: &mut [u8], pos: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        match file.read_at(&mut buf[done..], pos + done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// The content of a small file.
pub(crate) fn read_whole(disk: &dyn Disk, path: &Path) -> io::Result<Vec<u8>> {
    let file = disk.open(path, Access::Read)?;
    let mut out = vec![0; file.len()? as usize];
    let read = read_full(&*file, &mut out, 0)?;
    out.truncate(read);
    Ok(out)
}

/// Finds out by writing a block whether a directory takes direct writes of the log's block size.
pub(crate) fn probe(disk: &dyn Disk, dir: &Path) -> io::Result<WriteMode> {
    let path = dir.join("probe.tmp");
    let made = disk.open(&path, Access::Create)?.allocate(BLOCK as u64);
    if made.is_err() {
        // An empty name on a full disk is in nobody's way, but it is not ours to leave.
        let _ = disk.remove(&path);
    }
    made?;
    let mut block = AlignedBuf::with_capacity(BLOCK);
    block.extend(&[0x5a; BLOCK]);
    let direct = disk
        .open(&path, Access::Write(WriteMode::Direct))
        .and_then(|file| write_exact(&*file, block.as_slice(), 0));
    disk.remove(&path)?;
    Ok(if direct.is_ok() { WriteMode::Direct } else { WriteMode::Buffered })
}
