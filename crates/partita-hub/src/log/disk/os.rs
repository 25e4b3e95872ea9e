//! The operating system's files.

use std::any::Any;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::Path;
use std::sync::Arc;

#[cfg(unix)]
use super::Held;
use super::{Access, Disk, DiskFile, WriteMode, kept};

/// The operating system's file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsDisk;

#[derive(Debug)]
struct OsFile(File);

impl Disk for OsDisk {
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        match access {
            Access::Read => options.read(true),
            Access::Create => options.read(true).write(true).create(true).truncate(true),
            Access::Write(WriteMode::Buffered) => options.read(true).write(true),
            Access::Write(WriteMode::Direct) => direct(options.write(true))?,
        };
        Ok(Arc::new(OsFile(match access {
            // A reader can come back; what is to be written cannot wait.
            Access::Read => options.open(path)?,
            _ => kept::open(|| options.open(path))?,
        })))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        let above = dir.parent().filter(|above| !above.as_os_str().is_empty());
        if !dir.is_dir() {
            if let Some(above) = above {
                self.create_dir(above)?;
            }
            match private_dir().create(dir) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        // Also if it is there: a process that was killed may have made it. A parent that may not be opened cannot be
        // synced by us; the directory still exists.
        let _ = self.sync_dir(above.unwrap_or(Path::new(".")));
        Ok(())
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        fs::remove_dir(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        // Windows has no way to ask for it, and writes names through.
        if cfg!(windows) { Ok(()) } else { kept::open(|| File::open(dir))?.sync_all() }
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Any + Send + Sync>> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let file = locked(file)?;
        // Somebody may have put another file in its place in between, and locked that one.
        match is_at(&file, path)? {
            true => Ok(Box::new(file)),
            false => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn lock_dir(&self, dir: &Path) -> io::Result<Box<dyn Any + Send + Sync>> {
        // Windows opens no directories as files. Network file systems may lock only what is open for writing.
        match File::open(dir).and_then(locked) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Ok(Box::new(())),
            lock => Ok(Box::new(lock?)),
        }
    }

    #[cfg(unix)]
    fn hold(&self, path: &Path) -> io::Result<Box<dyn Held>> {
        Ok(Box::new(HeldFile(File::open(path)?)))
    }
}

fn locked(file: File) -> io::Result<File> {
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Whether a name leads to an open file. Both are asked now: some file systems change their numbers for a file, but not
/// while it is open.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let (held, there) = (file.metadata()?, fs::metadata(path)?);
    Ok((held.dev(), held.ino()) == (there.dev(), there.ino()))
}

/// What is open cannot be replaced there.
#[cfg(not(unix))]
fn is_at(_: &File, _: &Path) -> io::Result<bool> {
    Ok(true)
}

#[cfg(unix)]
#[derive(Debug)]
struct HeldFile(File);

#[cfg(unix)]
impl Held for HeldFile {
    fn is_at(&self, path: &Path) -> io::Result<bool> {
        is_at(&self.0, path)
    }
}

/// Directories that only their owner may look into: they hold other people's events.
fn private_dir() -> fs::DirBuilder {
    #[cfg_attr(not(unix), expect(unused_mut))]
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
}

impl DiskFile for OsFile {
    #[cfg(unix)]
    fn read_at(&self, buf: &mut [u8], pos: u64) -> io::Result<usize> {
        std::os::unix::fs::FileExt::read_at(&self.0, buf, pos)
    }

    #[cfg(unix)]
    fn write_at(&self, buf: &[u8], pos: u64) -> io::Result<usize> {
        std::os::unix::fs::FileExt::write_at(&self.0, buf, pos)
    }

    #[cfg(windows)]
    fn read_at(&self, buf: &mut [u8], pos: u64) -> io::Result<usize> {
        match std::os::windows::fs::FileExt::seek_read(&self.0, buf, pos) {
            // Reading at the end of a file is an error there.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
            read => read,
        }
    }

    #[cfg(windows)]
    fn write_at(&self, buf: &[u8], pos: u64) -> io::Result<usize> {
        std::os::windows::fs::FileExt::seek_write(&self.0, buf, pos)
    }

    fn sync(&self) -> io::Result<()> {
        // On macOS this is F_FULLFSYNC.
        self.0.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        platform::allocate(&self.0, len)
    }

    fn will_need(&self, pos: u64, len: u64) {
        platform::will_need(&self.0, pos, len);
    }

    fn random_access(&self) {
        platform::random_access(&self.0);
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn direct(options: &mut OpenOptions) -> io::Result<&mut OpenOptions> {
    use rustix::fs::OFlags;
    use std::os::unix::fs::OpenOptionsExt;

    Ok(options.custom_flags((OFlags::DIRECT | OFlags::DSYNC).bits().cast_signed()))
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn direct(_: &mut OpenOptions) -> io::Result<&mut OpenOptions> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod platform {
    use std::fs::File;
    use std::io;
    use std::num::NonZeroU64;

    use rustix::fs::{Advice, FallocateFlags, fadvise, fallocate};
    use rustix::io::Errno;

    pub(super) fn allocate(file: &File, len: u64) -> io::Result<()> {
        match fallocate(file, FallocateFlags::empty(), 0, len) {
            // Not every file system can reserve; the zeros that follow do, more slowly.
            Err(Errno::OPNOTSUPP) => file.set_len(len),
            other => Ok(other?),
        }
    }

    // Advice that is refused changes speed only.
    pub(super) fn will_need(file: &File, pos: u64, len: u64) {
        let _ = fadvise(file, pos, NonZeroU64::new(len), Advice::WillNeed);
    }

    pub(super) fn random_access(file: &File) {
        let _ = fadvise(file, 0, None, Advice::Random);
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod platform {
    use std::fs::File;
    use std::io;

    pub(super) fn allocate(file: &File, len: u64) -> io::Result<()> {
        file.set_len(len)
    }

    pub(super) fn will_need(_: &File, _: u64, _: u64) {}

    pub(super) fn random_access(_: &File) {}
}
