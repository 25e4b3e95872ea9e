//! One instance's way to the shared store: calls take time, get lost, arrive late.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use partita_core::model::{Incarnation, Scope};
use partita_core::store::{
    CheckpointOutcome, CheckpointRecord, CheckpointStore, CheckpointWrite, GroupView, InstanceOutcome,
    InstanceWrite, MemoryStore, MoveRecord, OwnershipOutcome, OwnershipWrite, StoreError, StoreProperties,
    StoreResult,
};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until};

use crate::oracle::SharedOracle;

/// The state of the network, changed by faults.
#[derive(Debug)]
pub(crate) struct Weather {
    pub(crate) rng: fastrand::Rng,
    pub(crate) latency: Duration,
    pub(crate) loss_percent: u8,
    pub(crate) loss_until: Instant,
    pub(crate) outage_until: Instant,
}

/// A store as seen from one instance.
#[derive(Clone)]
pub(crate) struct Link {
    inner: MemoryStore,
    weather: Arc<Mutex<Weather>>,
    cut_until: Arc<Mutex<Instant>>,
    oracle: SharedOracle,
}

/// What becomes of a call.
enum Fate {
    Answered,
    RequestLost,
    ReplyLost,
    /// The request arrives when nobody waits for the reply any more.
    Late(Duration),
}

impl Link {
    pub(crate) fn new(
        inner: MemoryStore,
        weather: Arc<Mutex<Weather>>,
        oracle: SharedOracle,
    ) -> (Self, Arc<Mutex<Instant>>) {
        let cut_until = Arc::new(Mutex::new(Instant::now()));
        (Self { inner, weather, cut_until: Arc::clone(&cut_until), oracle }, cut_until)
    }

    /// When the store can be reached again, if it cannot be now.
    fn unreachable_until(&self) -> Option<Instant> {
        let cut = *self.cut_until.lock().unwrap_or_else(PoisonError::into_inner);
        let outage = self.weather.lock().unwrap_or_else(PoisonError::into_inner).outage_until;
        Some(cut.max(outage)).filter(|until| *until > Instant::now())
    }

    fn is_lossy(&self) -> bool {
        Instant::now() < self.weather.lock().unwrap_or_else(PoisonError::into_inner).loss_until
    }

    fn draw(&self) -> (Fate, Duration, Duration) {
        let mut weather = self.weather.lock().unwrap_or_else(PoisonError::into_inner);
        let latency = weather.latency.as_millis() as u64;
        let way = |weather: &mut Weather| Duration::from_millis(weather.rng.u64(0..=latency));
        let (there, back) = (way(&mut weather), way(&mut weather));
        let lossy = Instant::now() < weather.loss_until;
        let fate = if lossy && weather.rng.u8(..100) < weather.loss_percent {
            match weather.rng.u8(..4) {
                0 => Fate::RequestLost,
                1 => Fate::Late(Duration::from_millis(weather.rng.u64(400..4_000))),
                _ => Fate::ReplyLost,
            }
        } else {
            Fate::Answered
        };
        (fate, there, back)
    }

    /// Sends a request that happens, or not, whatever becomes of the caller.
    fn call<T: Send + 'static>(
        &self,
        op: &'static str,
        request: impl FnOnce(Link) -> BoxFuture<'static, StoreResult<T>> + Send + 'static,
    ) -> BoxFuture<'static, StoreResult<T>> {
        let (fate, there, back) = self.draw();
        let link = self.clone();
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            let on_the_way = async move {
                let late = match fate {
                    Fate::Late(late) => late,
                    _ => there,
                };
                sleep(late).await;
                // Once the weather is fine, nothing old turns up any more.
                let stale = matches!(fate, Fate::Late(_)) && !link.is_lossy();
                if matches!(fate, Fate::RequestLost) || stale || link.unreachable_until().is_some() {
                    link.oracle.lock().lost_request();
                    return;
                }
                let result = request(link.clone()).await;
                sleep(back).await;
                // A reply that is on its way when the store becomes unreachable is lost, too.
                if matches!(fate, Fate::Answered) && link.unreachable_until().is_none() {
                    let _ = reply.send(result);
                } else {
                    link.oracle.lock().lost_reply();
                }
            };
            tokio::spawn(on_the_way);
            match answer.await {
                Ok(result) => result,
                Err(_) => {
                    // Nobody says that nothing will come: the caller's deadline does.
                    sleep(Duration::from_secs(3_600)).await;
                    Err(StoreError::unknown(op, "lost"))
                }
            }
        })
    }
}

impl CheckpointStore for Link {
    fn properties(&self) -> StoreProperties {
        self.inner.properties()
    }

    fn write_instance<'a>(
        &'a self,
        scope: &'a Scope,
        write: InstanceWrite,
    ) -> BoxFuture<'a, StoreResult<InstanceOutcome>> {
        let (scope, sent, oracle) = (scope.clone(), Instant::now(), self.oracle.clone());
        let answer = self.call("write_instance", {
            let write = write.clone();
            move |link| {
                Box::pin(async move {
                    let outcome = link.inner.write_instance(&scope, write.clone()).await?;
                    link.oracle.lock().instance_written(&write, &outcome);
                    Ok(outcome)
                })
            }
        });
        Box::pin(async move {
            let outcome = answer.await?;
            oracle.lock().instance_answered(&write, &outcome, sent);
            Ok(outcome)
        })
    }

    fn write_ownership<'a>(
        &'a self,
        scope: &'a Scope,
        write: OwnershipWrite,
    ) -> BoxFuture<'a, StoreResult<OwnershipOutcome>> {
        let scope = scope.clone();
        self.call("write_ownership", move |link| {
            Box::pin(async move {
                let outcome = link.inner.write_ownership(&scope, write.clone()).await?;
                link.oracle.lock().ownership_written(&write, &outcome);
                Ok(outcome)
            })
        })
    }

    fn write_checkpoint<'a>(
        &'a self,
        scope: &'a Scope,
        write: CheckpointWrite,
    ) -> BoxFuture<'a, StoreResult<CheckpointOutcome>> {
        let scope = scope.clone();
        self.call("write_checkpoint", move |link| {
            Box::pin(async move {
                let outcome = link.inner.write_checkpoint(&scope, write.clone()).await?;
                link.oracle.lock().checkpoint_written(&write, &outcome);
                Ok(outcome)
            })
        })
    }

    fn view<'a>(&'a self, scope: &'a Scope) -> BoxFuture<'a, StoreResult<GroupView>> {
        let scope = scope.clone();
        self.call("view", move |link| Box::pin(async move { link.inner.view(&scope).await }))
    }

    fn checkpoints<'a>(&'a self, scope: &'a Scope) -> BoxFuture<'a, StoreResult<Vec<CheckpointRecord>>> {
        self.inner.checkpoints(scope)
    }

    fn moves<'a>(&'a self, scope: &'a Scope) -> BoxFuture<'a, StoreResult<Vec<MoveRecord>>> {
        self.inner.moves(scope)
    }

    fn changed<'a>(&'a self, scope: &'a Scope, me: &'a Incarnation, cursor: u64) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            self.inner.changed(scope, me, cursor).await;
            // A notification does not get through either while the store is out of reach.
            while let Some(until) = self.unreachable_until() {
                sleep_until(until).await;
            }
        })
    }
}
