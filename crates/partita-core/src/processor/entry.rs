//! What is looked at before a group is joined: whether its records are under a former name, and whether they are of
//! this hub.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;

use super::StartError;
use crate::model::{Scope, StreamId};
use crate::report::{ErrorReport, Operation, Reporter};
use crate::source::{EventSource, SourceErrorKind};
use crate::store::{Adoption, CheckpointStore, InstanceSeen, StoreError, StoreResult, reads_another};
use crate::timing::Timing;

/// How long moving records may take.
const ADOPT_DEADLINE: Duration = Duration::from_secs(10);

/// How long the hub may take to say whether it has the group.
const GROUP_DEADLINE: Duration = Duration::from_secs(10);

/// What is needed to look.
pub(super) struct Entry {
    pub(super) source: Arc<dyn EventSource>,
    pub(super) store: Arc<dyn CheckpointStore>,
    pub(super) scope: Arc<Scope>,
    pub(super) stream: Option<StreamId>,
    pub(super) timing: Timing,
    /// After how long, at most, the others notice that the hub was reset.
    pub(super) discovery_interval: Duration,
    pub(super) reporter: Reporter,
}

impl Entry {
    /// Makes sure that the hub has the group, moves records that are under a former name, and makes sure that nobody reads another hub under this one.
    pub(super) async fn before(&self) -> Result<(), StartError> {
        self.check_group().await?;
        for namespace in self.source.former_namespaces() {
            let former = Scope { namespace, ..Scope::clone(&self.scope) };
            if former != *self.scope {
                self.adopt(&former).await?;
            }
        }
        self.refuse_other_hubs(self.discovery_interval + 2 * self.timing.cycle()).await
    }

    /// Looks once more when the instance is registered: of two that start at the same moment neither saw the other before.
    pub(super) async fn after(&self) -> Result<(), StartError> {
        self.refuse_other_hubs(2 * self.timing.cycle()).await
    }

    /// Whatever may pass does not prevent a start: readers try again, too.
    async fn check_group(&self) -> Result<(), StartError> {
        let asked =
            AssertUnwindSafe(async { self.source.check_group(&self.scope.group).await }).catch_unwind();
        match tokio::time::timeout(GROUP_DEADLINE, asked).await {
            Ok(Ok(Err(error))) if error.kind() == SourceErrorKind::Fatal => Err(error.into()),
            _ => Ok(()),
        }
    }

    async fn adopt(&self, former: &Scope) -> Result<(), StartError> {
        // Who has just crashed counts as live until its ttl has passed.
        let mut waited = Duration::ZERO;
        loop {
            let adopted = self.store.adopt_scope(former, &self.scope, self.stream.as_ref());
            match within("adopt_scope", ADOPT_DEADLINE, adopted).await? {
                Adoption::Nothing => return Ok(()),
                Adoption::Moved => {
                    tracing::info!(from = %former, to = %self.scope, "moved the group's records to its new name");
                    return Ok(());
                }
                Adoption::InUse(seen) if waited <= seen.record.ttl => {
                    let pause = self.timing.cycle();
                    tokio::time::sleep(pause).await;
                    waited += pause;
                }
                Adoption::InUse(seen) => {
                    return Err(StartError::FormerNameInUse {
                        scope: self.scope.to_string(),
                        former: former.to_string(),
                        instance: seen.record.incarnation.id().short().to_owned(),
                    });
                }
                Adoption::OtherStream(_) => {
                    let error = format!(
                        "the store has records of {former}, but they are of another hub than {}, or of this one before it \
                         was reset: they stay where they are, and this group starts without checkpoints",
                        self.scope
                    );
                    let error = error.into();
                    let report = ErrorReport { partition: None, operation: Operation::Register, error };
                    self.reporter.report(report);
                    return Ok(());
                }
            }
        }
    }

    /// A hub that was reset is noticed by one instance after the other, so it takes a while before somebody who reads
    /// another life of the hub's data is known to read another hub.
    async fn refuse_other_hubs(&self, patience: Duration) -> Result<(), StartError> {
        if self.stream.is_none() {
            return Ok(());
        }
        let cycle = self.timing.cycle();
        let mut waited = Duration::ZERO;
        loop {
            // A store that does not answer is told of when the instance registers.
            let view = within("view", self.timing.call_deadline(), self.store.view(&self.scope)).await;
            let Ok(view) = view else { return Ok(()) };
            let is_other = |seen: &&InstanceSeen| {
                seen.age < seen.record.ttl && reads_another(seen, self.stream.as_ref())
            };
            let Some(other) = view.instances.iter().find(is_other) else { return Ok(()) };
            if waited > patience {
                return Err(StartError::OtherHub {
                    scope: self.scope.to_string(),
                    instance: other.record.incarnation.id().short().to_owned(),
                    host: other.record.host.to_string(),
                });
            }
            tokio::time::sleep(cycle).await;
            waited += cycle;
        }
    }
}

async fn within<T>(
    op: &'static str,
    time: Duration,
    call: impl Future<Output = StoreResult<T>>,
) -> StoreResult<T> {
    match tokio::time::timeout(time, call).await {
        Ok(answer) => answer,
        Err(_) => Err(StoreError::unknown(op, format!("no answer within {time:?}"))),
    }
}
