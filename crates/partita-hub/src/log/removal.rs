//! Deleting a hub so that a power cut leaves it whole or gone: an empty file named `deleted` makes it gone, and what it
//! held is removed after that, now or when the directory is opened again.

use std::io;
use std::path::{Path, PathBuf};

use super::book::DAMAGE;
use super::disk::{Access, Disk};
use super::segment::{index_id, segment_id};
use super::witness;

/// A hub with this file in its directory is no hub any more.
pub(crate) const DELETED: &str = "deleted";

/// Whether a file in a hub's directory was made by us.
fn is_ours(name: &str) -> bool {
    matches!(name, "meta" | DAMAGE | DELETED)
        || name.ends_with(".tmp")
        || name.starts_with("spare-")
        || segment_id(name).is_some()
        || index_id(name).is_some()
}

/// Makes a hub gone, durably.
pub(crate) fn mark_deleted(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    disk.open(&dir.join(DELETED), Access::Create)?.sync()?;
    disk.sync_dir(dir)
}

/// Whether a hub's directory holds what is left of one that was deleted.
pub(crate) fn is_deleted(disk: &dyn Disk, dir: &Path) -> io::Result<bool> {
    Ok(disk.list(dir)?.iter().any(|name| name == DELETED))
}

/// Removes what a deleted hub left. With `keep_number` the directory stays, so that its number is not given again.
/// What is not ours stays, and the directory with it.
pub(crate) fn sweep(disk: &dyn Disk, dir: &Path, keep_number: bool) -> io::Result<()> {
    // Before the directory: what bears witness to a hub without one tells that it was lost.
    witness::forget(disk, dir)?;
    for name in disk.list(dir)?.iter().filter(|name| *name != DELETED && is_ours(name)) {
        disk.remove(&dir.join(name))?;
    }
    // Before the file that says that all this was deleted.
    disk.sync_dir(dir)?;
    if keep_number || disk.list(dir)?.iter().any(|name| name != DELETED) {
        return Ok(());
    }
    disk.remove(&dir.join(DELETED))?;
    disk.sync_dir(dir)?;
    disk.remove_dir(dir)
}

/// Our files in a hub's directory, with their sizes.
pub(crate) fn files(disk: &dyn Disk, dir: &Path) -> io::Result<Vec<(PathBuf, u64)>> {
    let names = disk.list(dir)?;
    let ours = names.iter().filter(|name| is_ours(name)).map(|name| dir.join(name));
    ours.chain(witness::files(disk, dir)?)
        .map(|path| disk.open(&path, Access::Read)?.len().map(|bytes| (path, bytes)))
        .collect()
}
