//! The store in the box: all records in this process, behind a mutex.

mod changes;
mod records;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::Notify;

use self::changes::Concerns;
use self::records::Records;
use super::{
    Adoption, CheckpointOutcome, CheckpointRecord, CheckpointStore, CheckpointWrite, GroupView,
    InstanceOutcome, InstanceWrite, MoveRecord, OwnershipOutcome, OwnershipWrite, StoreError,
    StoreProperties, StoreResult,
};
use crate::model::{Incarnation, Scope, StreamId};
use crate::timing::Timing;

/// Keeps records in memory, for tests, for simulations and for processors that share one process. Clones share the
/// records. Ages follow tokio's clock, so they stand still while it is paused.
#[derive(Clone, Debug)]
pub struct MemoryStore {
    scopes: Arc<Mutex<BTreeMap<Scope, Arc<Shared>>>>,
    atomic: bool,
}

#[derive(Debug, Default)]
struct Shared(Mutex<Records>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Records> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `write` under the lock and wakes those concerned after it.
    fn write<T>(&self, write: impl FnOnce(&mut Records) -> (T, Concerns)) -> T {
        let mut records = self.lock();
        let (outcome, concerns) = write(&mut records);
        let wake = records.changes.add(concerns);
        drop(records);
        wake.wake();
        outcome
    }
}

impl MemoryStore {
    /// An empty store that changes an ownership and its checkpoint in one step, as a database does.
    pub fn new() -> Self {
        Self { scopes: Arc::default(), atomic: true }
    }

    /// An empty store that changes one record at a time, as a blob store does.
    pub fn single_record() -> Self {
        Self { atomic: false, ..Self::new() }
    }

    fn scope(&self, scope: &Scope) -> Arc<Shared> {
        let mut scopes = self.scopes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shared) = scopes.get(scope) {
            return Arc::clone(shared);
        }
        Arc::clone(scopes.entry(scope.clone()).or_default())
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl CheckpointStore for MemoryStore {
    fn properties(&self) -> StoreProperties {
        StoreProperties {
            atomic: self.atomic,
            timing: Timing::FAST,
            stamp_step: Duration::ZERO,
            notifies: true,
        }
    }

    fn write_instance<'a>(
        &'a self,
        scope: &'a Scope,
        write: InstanceWrite,
    ) -> BoxFuture<'a, StoreResult<InstanceOutcome>> {
        Box::pin(async move { Ok(self.scope(scope).write(|records| records.write_instance(&write))) })
    }

    fn write_ownership<'a>(
        &'a self,
        scope: &'a Scope,
        write: OwnershipWrite,
    ) -> BoxFuture<'a, StoreResult<OwnershipOutcome>> {
        Box::pin(async move {
            if write.checkpoint.is_some() && !self.atomic {
                let why = "this store changes one record at a time";
                return Err(StoreError::permanent("write_ownership", why));
            }
            Ok(self.scope(scope).write(|records| records.write_ownership(&write)))
        })
    }

    fn write_checkpoint<'a>(
        &'a self,
        scope: &'a Scope,
        write: CheckpointWrite,
    ) -> BoxFuture<'a, StoreResult<CheckpointOutcome>> {
        Box::pin(async move { Ok(self.scope(scope).lock().write_checkpoint(&write)) })
    }

    fn view<'a>(&'a self, scope: &'a Scope) -> BoxFuture<'a, StoreResult<GroupView>> {
        Box::pin(async move {
            let shared = self.scope(scope);
            let (ownerships, instances, cursor) = {
                let records = shared.lock();
                (records.ownerships(), records.instances(), records.changes.cursor())
            };
            Ok(GroupView { ownerships: Arc::unwrap_or_clone(ownerships), instances, cursor })
        })
    }

    fn checkpoints<'a>(&'a self, scope: &'a Scope) -> BoxFuture<'a, StoreResult<Vec<CheckpointRecord>>> {
        Box::pin(async move { Ok(self.scope(scope).lock().checkpoints()) })
    }

    fn moves<'a>(&'a self, scope: &'a Scope) -> BoxFuture<'a, StoreResult<Vec<MoveRecord>>> {
        Box::pin(async move { Ok(self.scope(scope).lock().moves()) })
    }

    fn adopt_scope<'a>(
        &'a self,
        from: &'a Scope,
        to: &'a Scope,
        stream: Option<&'a StreamId>,
    ) -> BoxFuture<'a, StoreResult<Adoption>> {
        Box::pin(async move {
            let mut scopes = self.scopes.lock().unwrap_or_else(PoisonError::into_inner);
            let to_is_empty = scopes.get(to).is_none_or(|own| own.lock().is_empty());
            let Some(former) = scopes.get(from).filter(|_| from != to) else { return Ok(Adoption::Nothing) };
            let refused = former.lock().adoption(to_is_empty, stream);
            if let Some(refused) = refused {
                return Ok(refused);
            }
            if let Some(former) = scopes.remove(from) {
                scopes.insert(to.clone(), former);
            }
            Ok(Adoption::Moved)
        })
    }

    fn changed<'a>(&'a self, scope: &'a Scope, me: &'a Incarnation, cursor: u64) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let shared = self.scope(scope);
            let waiter = Waiter { notify: shared.lock().changes.enter(me), shared: &shared, me };
            loop {
                // Made before the question, so a change between the two is not missed.
                let notified = waiter.notify.notified();
                if shared.lock().changes.is_news(me, cursor) {
                    return;
                }
                notified.await;
            }
        })
    }
}

/// One call of `changed`; leaves when the call is answered or dropped.
struct Waiter<'a> {
    notify: Arc<Notify>,
    shared: &'a Shared,
    me: &'a Incarnation,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.shared.lock().changes.leave(self.me);
    }
}
