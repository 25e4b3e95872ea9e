//! Descriptors that are kept for the log. Connections, readers and the rest of the process may use up all that the system
//! gives; what the log needs to go on writing is then made room for by giving one of these back.

use std::fs::File;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::is_out_of_files;

/// A new segment takes three, one after the other or at once, and hubs share these.
const KEPT_MAX: usize = 8;

static KEPT: Mutex<Vec<File>> = Mutex::new(Vec::new());

fn kept() -> MutexGuard<'static, Vec<File>> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens a file; if there is no descriptor for it, one of those that are kept makes room.
pub(super) fn open(open: impl Fn() -> io::Result<File>) -> io::Result<File> {
    loop {
        match open() {
            Err(error) if is_out_of_files(&error) => {
                // Somebody else may be quicker to take its place: once more, as long as there are any.
                if kept().pop().is_none() {
                    return Err(error);
                }
            }
            opened => {
                keep();
                return opened;
            }
        }
    }
}

/// Keeps as many as there shall be, or as the system gives.
fn keep() {
    let mut kept = kept();
    while kept.len() < KEPT_MAX {
        match File::open(if cfg!(windows) { "NUL" } else { "/dev/null" }) {
            Ok(file) => kept.push(file),
            Err(_) => return,
        }
    }
}
