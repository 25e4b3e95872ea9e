//! A processor's book: what it handled, which moves it made and which partitions it opened. Its own process writes it, before a
//! call ends, so that nothing is checkpointed that is not written down; the demo reads it while it grows. It knows nothing of
//! checkpoints: it is what they are checked against.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use partita::model::{Incarnation, Scope};
use partita::store::{
    CheckpointOutcome, CheckpointRecord, CheckpointWrite, GroupView, InstanceOutcome, InstanceWrite,
    MoveRecord, OwnershipOutcome, OwnershipWrite, StoreProperties, StoreResult,
};
use partita::{CheckpointStore, Context, Epoch, Event, Hooks, PartitionId, Timestamp};

use super::clock;
use super::ledger::{Span, number_of};
use super::moves::moved;
use super::slots::{Slot, SlotFile, decode_all, instance};

/// Where the books of a directory are.
const BOOKS: &str = "books";

/// Where the book of an instance is.
pub(crate) fn path(data: &Path, number: u32) -> PathBuf {
    data.join(BOOKS).join(instance(number).as_str())
}

/// Makes room for books.
pub(crate) fn prepare(data: &Path) -> io::Result<()> {
    std::fs::create_dir_all(data.join(BOOKS))
}

/// Forgets all books.
pub(crate) fn clear(data: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(data.join(BOOKS)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// What is in a book so far; nothing if it was not begun.
pub(crate) fn read(data: &Path, number: u32) -> Result<Vec<Slot>, String> {
    let path = path(data, number);
    let content = match std::fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        content => content.map_err(|error| format!("cannot read {}: {error}", path.display()))?,
    };
    decode_all(&content).ok_or_else(|| format!("{} is damaged: remove {BOOKS}", path.display()))
}

/// A book that its processor writes. Clones are the same book.
#[derive(Clone, Debug)]
pub(crate) struct Book(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    run: u32,
    file: SlotFile,
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    /// The span that may still grow, by partition.
    open: BTreeMap<usize, (u64, Epoch, i64)>,
    /// Moves that are written down.
    known: BTreeSet<(usize, Epoch)>,
}

impl Book {
    /// Begins the book of an instance.
    pub(crate) fn create(data: &Path, number: u32, run: u32) -> io::Result<Self> {
        let file = SlotFile::create(&path(data, number))?;
        Ok(Self(Arc::new(Shared { run, file, entries: Mutex::default() })))
    }

    /// Writes down that an event was handled by a call that began at `begun` and ends now.
    pub(crate) fn handled(&self, event: &Event, cx: &Context, begun: Duration) -> io::Result<()> {
        let Shared { run, file, .. } = &*self.0;
        let (partition, epoch, sequence) = (number_of(cx.partition()), cx.epoch(), event.sequence_number().0);
        let ended = clock::now();
        let mut entries = self.entries();
        if let Some((at, of, last)) = entries.open.get_mut(&partition)
            && (*of, *last + 1) == (epoch, sequence)
        {
            file.extend(*at, sequence, ended)?;
            *last = sequence;
            return Ok(());
        }
        let span = Span {
            run: *run,
            first: sequence,
            last: sequence,
            instance: cx.instance().clone(),
            epoch,
            enqueued: event.enqueued_time(),
            begun,
            ended,
        };
        let at = file.add(&Slot::Handled { partition, span }.encode())?;
        entries.open.insert(partition, (at, epoch, sequence));
        Ok(())
    }

    /// Writes down what is new in the store's own log.
    fn merge(&self, recorded: &[MoveRecord]) {
        let at = clock::now();
        let mut entries = self.entries();
        for record in recorded {
            if entries.known.insert((number_of(&record.partition), record.epoch)) {
                // Somebody else sees the move, too, or the demo itself.
                let _ = self.0.file.add(&Slot::Moved(moved(record, at)).encode());
            }
        }
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hooks for Book {
    fn opened(&self, partition: &PartitionId, epoch: Epoch) {
        let opened = Slot::Opened { partition: number_of(partition), epoch, at: Timestamp::now() };
        // Without it a gap is not measured, and that is all.
        let _ = self.0.file.add(&opened.encode());
    }
}

/// A store that writes all moves down. It forgets old ones; this asks it after every write, so none is missed.
pub(crate) struct BookedStore<S> {
    pub(crate) inner: S,
    pub(crate) book: Book,
}

impl<S: CheckpointStore> CheckpointStore for BookedStore<S> {
    fn properties(&self) -> StoreProperties {
        self.inner.properties()
    }

    fn write_instance<'a>(
        &'a self,
        scope: &'a Scope,
        write: InstanceWrite,
    ) -> BoxFuture<'a, StoreResult<InstanceOutcome>> {
        self.inner.write_instance(scope, write)
    }

    fn write_ownership<'a>(
        &'a self,
        scope: &'a Scope,
        write: OwnershipWrite,
    ) -> BoxFuture<'a, StoreResult<OwnershipOutcome>> {
        Box::pin(async move {
            let outcome = self.inner.write_ownership(scope, write).await?;
            if matches!(outcome, OwnershipOutcome::Applied { .. })
                && let Ok(moves) = self.inner.moves(scope).await
            {
                self.book.merge(&moves);
            }
            Ok(outcome)
        })
    }

    fn write_checkpoint<'a>(
        &'a self,
        scope: &'a Scope,
        write: CheckpointWrite,
    ) -> BoxFuture<'a, StoreResult<CheckpointOutcome>> {
        self.inner.write_checkpoint(scope, write)
    }

    fn view<'a>(&'a self, scope: &'a Scope) -> BoxFuture<'a, StoreResult<GroupView>> {
        self.inner.view(scope)
    }

    fn checkpoints<'a>(&'a self, scope: &'a Scope) -> BoxFuture<'a, StoreResult<Vec<CheckpointRecord>>> {
        self.inner.checkpoints(scope)
    }

    fn moves<'a>(&'a self, scope: &'a Scope) -> BoxFuture<'a, StoreResult<Vec<MoveRecord>>> {
        self.inner.moves(scope)
    }

    fn changed<'a>(&'a self, scope: &'a Scope, me: &'a Incarnation, cursor: u64) -> BoxFuture<'a, ()> {
        self.inner.changed(scope, me, cursor)
    }
}
