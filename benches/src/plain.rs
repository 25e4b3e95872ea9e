//! A plain file on the same disk: what hubs and logs are read against.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::stats::Sample;

const PLAIN_BYTES: u64 = 256 << 20;
const PLAIN_BLOCK: usize = 1 << 20;

/// A file that exists, and is written over.
pub(crate) struct Plain(File);

impl Plain {
    pub(crate) fn new(dir: &Path) -> Self {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(true).open(dir.join("plain"));
        let file = file.expect("a file beside the log");
        let block = vec![7; PLAIN_BLOCK];
        for pos in (0..PLAIN_BYTES).step_by(PLAIN_BLOCK) {
            file.write_all_at(&block, pos).expect("written");
        }
        file.sync_all().expect("synced");
        Self(file)
    }

    /// Bytes per second of plain writes of 1 MiB, each made durable.
    pub(crate) fn speed(&self, time: Duration) -> f64 {
        let block = vec![7; PLAIN_BLOCK];
        let (started, mut written) = (Instant::now(), 0);
        while started.elapsed() < time {
            self.0.write_all_at(&block, written % PLAIN_BYTES).expect("written");
            self.0.sync_data().expect("synced");
            written += PLAIN_BLOCK as u64;
        }
        written as f64 / started.elapsed().as_secs_f64()
    }

    /// Milliseconds of single writes of a batch's bytes, each with its sync, at the producers' pace or as close to it as one
    /// thread gets. Counted from the beginning of each: one that waits for the one before it would tell of the queue.
    pub(crate) fn paced(&self, bytes: usize, pace: Duration, batches: u64) -> Sample {
        let block = vec![7; bytes];
        let started = Instant::now();
        let took = (0..batches).map(|i| {
            let due = pace * i as u32;
            sleep_until(started, due);
            let pos = (i * block.len() as u64) % (PLAIN_BYTES - block.len() as u64);
            let begun = Instant::now();
            self.0.write_all_at(&block, pos).expect("written");
            self.0.sync_data().expect("synced");
            begun.elapsed().as_secs_f64() * 1e3
        });
        Sample::new(took)
    }
}

pub(crate) fn sleep_until(started: Instant, due: Duration) {
    while let Some(left) = due.checked_sub(started.elapsed()).filter(|left| !left.is_zero()) {
        thread::sleep(left);
    }
}
