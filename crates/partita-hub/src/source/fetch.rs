//! Batches of a hub's reader without blocking a task: what is in memory at once, the disk on blocking threads.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use partita_core::model::{Position, SequenceNumber};
use partita_core::source::{Gap, GapCause};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::broker::{HubReadError, HubReader};
use crate::log::{ReadError, StoredBatch};

/// A reader back from the disk, with what it read there.
type Back = (Box<HubReader>, Vec<StoredBatch>, Result<(), HubReadError>);

/// Where the hub's reader is.
#[derive(Debug)]
enum ReaderPlace {
    Here(Box<HubReader>),
    /// On a blocking thread, reading the disk. A poll that was given up meanwhile is taken up by the next.
    Away(JoinHandle<Back>),
    /// It failed before, or the runtime is going down.
    Gone,
}

/// A hub's reader that can be polled.
#[derive(Debug)]
pub(crate) struct Fetch {
    place: ReaderPlace,
}

impl Fetch {
    pub(crate) fn new(reader: HubReader) -> Self {
        Self { place: ReaderPlace::Here(Box::new(reader)) }
    }

    /// The reader, unless it is at the disk or failed.
    pub(crate) fn reader(&self) -> Option<&HubReader> {
        match &self.place {
            ReaderPlace::Here(reader) => Some(reader),
            ReaderPlace::Away(_) | ReaderPlace::Gone => None,
        }
    }

    /// Events that the reader passed over since this was last asked; one that is at the disk is asked when it is back.
    pub(crate) fn take_gap(&mut self) -> Option<Gap> {
        match &mut self.place {
            ReaderPlace::Here(reader) => reader.take_gap(),
            ReaderPlace::Away(_) | ReaderPlace::Gone => None,
        }
    }

    /// Whether it reads the disk right now.
    #[cfg(feature = "server")]
    pub(crate) fn is_away(&self) -> bool {
        matches!(self.place, ReaderPlace::Away(_))
    }

    /// Fails if the reader was sent away; a reader that is at the disk is asked when it is back.
    pub(crate) fn check(&self) -> Result<(), HubReadError> {
        match &self.place {
            ReaderPlace::Here(reader) => reader.check(),
            ReaderPlace::Away(_) => Ok(()),
            ReaderPlace::Gone => Err(ReadError::Closed.into()),
        }
    }

    /// Goes on at this event, which was read before.
    #[cfg(feature = "server")]
    pub(crate) fn seek(&mut self, seq: u64) {
        if let ReaderPlace::Here(reader) = &mut self.place {
            reader.seek(seq);
        }
    }

    /// Ready when a fetch would have something to say, or the reader was sent away. Starts no reading.
    #[cfg(feature = "server")]
    pub(crate) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.place {
            ReaderPlace::Here(reader) => reader.poll_ready(cx),
            ReaderPlace::Away(reading) => match reading.is_finished() {
                true => Poll::Ready(()),
                // The handle's waker is set by the poll that started it.
                false => Poll::Pending,
            },
            ReaderPlace::Gone => Poll::Ready(()),
        }
    }

    /// Appends the next batches to `out`, about `bytes_max` bytes; none only if it fails. A reader that retention
    /// overtook goes on at the oldest event, and one that comes to a loss which was accepted goes on after it; both say so in
    /// the log. After another error it is of no use.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        bytes_max: usize,
        out: &mut Vec<StoredBatch>,
    ) -> Poll<Result<(), HubReadError>> {
        let had = out.len();
        loop {
            let result = match &mut self.place {
                ReaderPlace::Gone => Err(ReadError::Closed.into()),
                ReaderPlace::Here(reader) => {
                    ready!(reader.poll_ready(cx));
                    match reader.read_cached(bytes_max, out) {
                        Ok(true) => Ok(()),
                        // There is no other thread, so this one waits for the disk.
                        Ok(false) if reader.hub().log().is_single_threaded() => reader.read(bytes_max, out),
                        Ok(false) => {
                            self.read_disk(bytes_max);
                            continue;
                        }
                        Err(error) => Err(error),
                    }
                }
                ReaderPlace::Away(reading) => match ready!(Pin::new(reading).poll(cx)) {
                    Ok((reader, found, result)) => {
                        out.extend(found);
                        self.place = ReaderPlace::Here(reader);
                        result
                    }
                    // The runtime is going down.
                    Err(_) => Err(ReadError::Closed.into()),
                },
            };
            match result {
                Ok(()) => {}
                Err(HubReadError::Log(gone @ (ReadError::Gone { .. } | ReadError::Lost { .. }))) => {
                    self.skip(&gone);
                }
                Err(error) => {
                    self.place = ReaderPlace::Gone;
                    return Poll::Ready(Err(error));
                }
            }
            if out.len() > had {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Sends the hub's reader to a blocking thread.
    fn read_disk(&mut self, bytes_max: usize) {
        if let ReaderPlace::Here(mut reader) = std::mem::replace(&mut self.place, ReaderPlace::Gone) {
            self.place = ReaderPlace::Away(spawn_blocking(move || {
                let mut found = Vec::new();
                let result = reader.read(bytes_max, &mut found);
                (reader, found, result)
            }));
        }
    }

    /// Retention overtook the reader, or it comes to a loss that was accepted.
    fn skip(&mut self, gone: &ReadError) {
        let ReaderPlace::Here(reader) = &mut self.place else { return };
        let (from, next, cause) = match gone {
            ReadError::Gone { from, first, .. } => (from, first, GapCause::Retention),
            ReadError::Lost { from, next, .. } => (from, next, GapCause::Damage),
            _ => return,
        };
        tracing::warn!(hub = %reader.hub().name(), %gone, next, "reader goes on after events that are gone");
        reader.pass_over(Position::at_sequence(SequenceNumber(from.cast_signed())), *next, cause);
    }
}
