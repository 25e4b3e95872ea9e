//! What can wait: prepares segment files, writes indexes of sealed segments, removes what retention lets go. One step
//! does all that is due; the thread around it decides when.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::core::{Core, lock, read, write};
use super::disk::{Access, is_out_of_files, write_exact};
use super::place::Place;
use super::retention::{SegmentFacts, expired};
use super::segment::{Segment, index_path};
use super::spares::Spare;

/// A segment of 64 MiB a minute is 1 MB/s: nobody notices, and a terabyte takes eleven days.
const SCRUB_EVERY: Duration = Duration::from_secs(60);

/// Does the background work of a hub.
#[derive(Debug)]
pub(crate) struct Housekeeper {
    core: Arc<Core>,
    /// Whether preparing failed last time, so that it is said once.
    failing: bool,
    /// The last segment that was looked through, and when.
    scrubbed: (u64, Instant),
    /// A segment that was taken away, as long as a power cut may bring it back.
    unsettled: Option<Removal>,
    /// Where the files have to be; none if they could not be opened.
    place: Option<Place>,
    /// Whether the record could not be written last time.
    unrecorded: bool,
}

/// A segment that was taken away, and the spare that it became.
#[derive(Debug)]
struct Removal {
    segment: u64,
    spare: Option<Spare>,
}

impl Housekeeper {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        let place = Place::of_hub(&core.disk, &core.dir);
        if let Err(error) = &place {
            tracing::warn!(hub = core.label(), %error, "it will not be noticed if the data directory is replaced");
        }
        Self {
            core,
            failing: false,
            scrubbed: (0, Instant::now()),
            unsettled: None,
            place: place.ok(),
            unrecorded: false,
        }
    }

    /// Does all that is due. False if something failed and is worth trying again later.
    pub(crate) fn step(&mut self) -> bool {
        if !self.is_in_place() {
            return false;
        }
        // Retention first: what it frees is the next segment.
        let retained = self.apply_retention();
        let prepared = self.prepare();
        let indexed = self.write_indexes();
        self.core.shrink_tail();
        self.core.verify_next();
        let booked = self.core.keep_book();
        retained && prepared && indexed && booked
    }

    /// Whether the files are still where the hub writes. If not, it acknowledges nothing any more, and nothing is changed
    /// in their place: what lies there now is somebody else's.
    fn is_in_place(&mut self) -> bool {
        let core = &self.core;
        if core.displaced.get().is_some() {
            return false;
        }
        let Some(active) = read(&core.segments).back().cloned() else { return true };
        let Some(reason) = self.place.as_mut().and_then(|place| place.check_active(&active)) else {
            return true;
        };
        tracing::error!(
            hub = core.label(),
            "{reason} while the hub runs: it takes no more events; put the data directory back and restart the hub"
        );
        let _ = core.displaced.set(reason);
        false
    }

    /// Writes down what was acknowledged. `closed`: nothing will follow.
    pub(crate) fn record(&mut self, closed: bool) {
        if !self.is_in_place() {
            return;
        }
        match self.core.write_record(closed) {
            Ok(()) => self.unrecorded = false,
            Err(error) => {
                if !std::mem::replace(&mut self.unrecorded, true) {
                    tracing::warn!(
                        hub = self.core.label(),
                        %error,
                        "what was acknowledged cannot be recorded, trying again every second"
                    );
                }
            }
        }
    }

    /// Looks through the next sealed segment if it is time to, so that damage is found before a reader needs the events.
    pub(crate) fn scrub_if_due(&mut self) {
        if self.scrubbed.1.elapsed() >= SCRUB_EVERY {
            self.scrub();
        }
    }

    /// Looks through the next sealed segment; after the last one it starts over.
    pub(crate) fn scrub(&mut self) {
        let next = {
            let segments = read(&self.core.segments);
            let sealed = || segments.iter().filter(|segment| segment.is_sealed());
            sealed().find(|segment| segment.id > self.scrubbed.0).or_else(|| sealed().next()).cloned()
        };
        self.scrubbed = (next.as_ref().map_or(0, |segment| segment.id), Instant::now());
        let Some(segment) = next else { return };
        if let Err(error) = self.core.look_through(&segment) {
            tracing::warn!(hub = self.core.label(), segment = segment.id, %error, "segment could not be read");
        }
    }

    fn prepare(&mut self) -> bool {
        let core = &self.core;
        match core.spares.prepare(&*core.disk, &core.dir, core.mode) {
            Ok(_) => {
                if std::mem::take(&mut self.failing) {
                    tracing::info!(hub = core.label(), "there is space for events again");
                }
                true
            }
            Err(error) => {
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::warn!(hub = core.label(), %error, "no segment can be prepared, trying again every second");
                }
                core.spares.fail(error.to_string());
                false
            }
        }
    }

    fn write_indexes(&self) -> bool {
        loop {
            let Some(segment) = lock(&self.core.to_index).pop_front() else { return true };
            if let Err(error) = self.write_index(&segment) {
                if is_out_of_files(&error) {
                    lock(&self.core.to_index).push_front(segment);
                    return false;
                }
                // The index stays in memory; after a restart it is made again from the segment.
                tracing::warn!(hub = self.core.label(), segment = segment.id, %error, "index not written");
                return false;
            }
        }
    }

    fn write_index(&self, segment: &Segment) -> io::Result<()> {
        let core = &self.core;
        let Some(index) = read(&segment.live).as_ref().map(|live| Arc::new(live.seal())) else {
            return Ok(());
        };
        let path = index_path(&core.dir, segment.id);
        let unfinished = path.with_extension("idx.tmp");
        let file = core.disk.open(&unfinished, Access::Create)?;
        write_exact(&*file, &index.encode(core.store, segment.id, segment.end()), 0)?;
        // Not synced: its checksum tells whether it is whole, and the segment has all that is in it.
        core.disk.rename(&unfinished, &path)?;
        lock(&core.indexes).insert(segment.id, index);
        *write(&segment.live) = None;
        Ok(())
    }

    fn apply_retention(&mut self) -> bool {
        let applied = self.remove_expired();
        if let Err(error) = &applied {
            tracing::warn!(hub = self.core.label(), %error, "an old segment could not be removed");
        }
        applied.is_ok()
    }

    fn remove_expired(&mut self) -> io::Result<()> {
        self.settle_removal()?;
        let core = &self.core;
        let facts: Vec<SegmentFacts> = read(&core.segments)
            .iter()
            .map(|segment| SegmentFacts {
                sealed: segment.is_sealed(),
                last_time: segment.last_time(),
                bytes: segment.capacity,
            })
            .collect();
        let retention = *lock(&core.retention);
        for _ in 0..expired(&facts, &retention, core.settings.clock.now_ms()) {
            self.remove_oldest()?;
        }
        Ok(())
    }

    /// Removes the oldest segment. It stays one until its file is gone: the next pass would take the one after it, and
    /// leave a hole.
    fn remove_oldest(&mut self) -> io::Result<()> {
        let core = &self.core;
        let Some(segment) = read(&core.segments).front().cloned() else { return Ok(()) };
        gone(core.disk.remove(&index_path(&core.dir, segment.id)))?;
        let mut spare = core.spares.name_for(&core.dir, segment.capacity);
        segment.retire(|| {
            let there = gone(match &spare {
                Some(path) => core.disk.rename(&segment.path, path),
                None => core.disk.remove(&segment.path),
            })?;
            spare = spare.take().filter(|_| there);
            // Before it is retired: whoever finds it so asks what the oldest one is.
            write(&core.segments).pop_front();
            Ok(())
        })?;
        lock(&core.indexes).remove(segment.id);
        lock(&core.to_index).retain(|waiting| waiting.id != segment.id);
        let spare = spare.map(|path| Spare { path, bytes: segment.capacity });
        self.unsettled = Some(Removal { segment: segment.id, spare });
        self.settle_removal()
    }

    /// Makes the last removal durable: before the next one, so that a power cut never leaves a hole between segments, and
    /// before anything is written to the file, which may otherwise come back under its former name.
    fn settle_removal(&mut self) -> io::Result<()> {
        let core = &self.core;
        if self.unsettled.is_some() {
            core.disk.sync_dir(&core.dir)?;
        }
        if let Some(Removal { segment, spare }) = self.unsettled.take() {
            tracing::debug!(hub = core.label(), segment, recycled = spare.is_some(), "old segment removed");
            if let Some(spare) = spare {
                core.spares.put(spare);
            }
        }
        Ok(())
    }
}

/// Whether a file was there to be taken away.
fn gone(taken: io::Result<()>) -> io::Result<bool> {
    match taken {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        taken => taken.map(|()| true),
    }
}
