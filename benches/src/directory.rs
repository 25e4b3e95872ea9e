//! A place for benchmarks that need a disk.

use std::path::{Path, PathBuf};

/// A directory beside the binary, on a disk and not in memory, which goes when the benchmark ends.
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new(name: &str) -> Self {
        let binary = std::env::current_exe().expect("the benchmark's own path");
        let path = binary.with_file_name(format!("{name}-bench-{:032x}", fastrand::u128(..)));
        std::fs::create_dir(&path).expect("a directory beside the benchmark");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
