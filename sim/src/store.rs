//! One instance's way to the shared store: calls take time, get lost, fail, arrive late.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use partita_core::model::{Incarnation, InstanceId, Scope};
use partita_core::store::{
    CheckpointOutcome, CheckpointRecord, CheckpointStore, CheckpointWrite, GroupView, InstanceOutcome,
    InstanceWrite, MoveReason, MoveRecord, OwnershipOutcome, OwnershipWrite, StoreError, StoreProperties,
    StoreResult,
};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep, sleep_until};

use crate::faults::{Blow, Moment};
use crate::oracle::SharedOracle;

/// What an ambush wants done to the process whose call it hit.
#[derive(Clone, Debug)]
pub(crate) enum Order {
    Crash(InstanceId),
    Freeze(InstanceId, Duration, Option<Duration>),
}

/// The state of the network and of the store, changed by faults.
#[derive(Debug)]
pub(crate) struct Weather {
    pub(crate) rng: fastrand::Rng,
    pub(crate) latency: Duration,
    pub(crate) slow: (Duration, Instant),
    pub(crate) loss: (u8, Instant),
    pub(crate) errors: (u8, Instant),
    pub(crate) outage: (bool, Instant),
    pub(crate) ambushes: Vec<(Moment, Blow, u8)>,
    /// For the world to carry out.
    pub(crate) orders: Vec<Order>,
    pub(crate) ordered: Arc<Notify>,
    pub(crate) calm: bool,
    /// Whether the store tells nobody of changes.
    pub(crate) silent: bool,
    /// By how much the records of before a jump of the store's clock look older.
    skews_ms: BTreeMap<Incarnation, i64>,
}

impl Weather {
    pub(crate) fn new(rng: fastrand::Rng, latency: Duration) -> Self {
        let past = Instant::now();
        Self {
            rng,
            latency,
            slow: (Duration::ZERO, past),
            loss: (0, past),
            errors: (0, past),
            outage: (false, past),
            ambushes: Vec::new(),
            orders: Vec::new(),
            ordered: Arc::default(),
            calm: false,
            silent: false,
            skews_ms: BTreeMap::new(),
        }
    }

    /// Lets the store's clock jump.
    pub(crate) fn jump(&mut self, by_ms: i64) {
        for skew in self.skews_ms.values_mut() {
            *skew += by_ms;
        }
    }

    /// Ends all that is wrong.
    pub(crate) fn clear(&mut self) {
        let now = Instant::now();
        self.calm = true;
        (self.slow.1, self.loss.1, self.errors.1, self.outage.1) = (now, now, now, now);
        self.ambushes.clear();
        self.orders.clear();
    }

    /// Draws what becomes of a call.
    fn draw(&mut self, caller: &InstanceId, moment: Moment) -> Journey {
        let now = Instant::now();
        let most = if now < self.slow.1 { self.slow.0 } else { self.latency }.as_millis() as u64;
        let [there, back] = [(); 2].map(|()| Duration::from_millis(self.rng.u64(0..=most)));
        let mut journey = Journey { fate: Fate::Answered, there, back, order: None };
        if let Some(index) = self.ambushes.iter().position(|(at, _, _)| *at == moment)
            && self.rng.u8(..4) > 0
        {
            let (_, blow, hits) = &mut self.ambushes[index];
            let blow = *blow;
            *hits -= 1;
            if *hits == 0 {
                self.ambushes.remove(index);
            }
            match blow {
                Blow::LoseRequest => journey.fate = Fate::RequestLost,
                Blow::LoseReply => journey.fate = Fate::ReplyLost,
                Blow::Late(late) => (journey.fate, journey.there) = (Fate::Late, late),
                Blow::Crash => journey.order = Some(Order::Crash(caller.clone())),
                Blow::Freeze { time, then_cut } => {
                    journey.order = Some(Order::Freeze(caller.clone(), time, then_cut));
                    // On its way while the caller stands still.
                    journey.back = Duration::from_millis(self.rng.u64(1..100));
                }
            }
        } else if now < self.loss.1 && self.rng.u8(..100) < self.loss.0 {
            journey.fate = match self.rng.u8(..4) {
                0 => Fate::RequestLost,
                1 => {
                    journey.there = Duration::from_millis(self.rng.u64(400..4_000));
                    Fate::Late
                }
                _ => Fate::ReplyLost,
            };
        } else if now < self.errors.1 && self.rng.u8(..100) < self.errors.0 {
            journey.fate = if self.rng.bool() { Fate::FailsBefore } else { Fate::FailsAfter };
        }
        journey
    }
}

/// A store as seen from one instance.
#[derive(Clone)]
pub(crate) struct Link {
    inner: Arc<dyn CheckpointStore>,
    caller: InstanceId,
    weather: Arc<Mutex<Weather>>,
    cut_until: Arc<Mutex<Instant>>,
    oracle: SharedOracle,
}

/// What becomes of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Answered,
    RequestLost,
    ReplyLost,
    /// The request arrives when nobody waits for the reply any more.
    Late,
    FailsBefore,
    FailsAfter,
}

struct Journey {
    fate: Fate,
    there: Duration,
    back: Duration,
    order: Option<Order>,
}

impl Link {
    pub(crate) fn new(
        inner: Arc<dyn CheckpointStore>,
        caller: InstanceId,
        weather: Arc<Mutex<Weather>>,
        oracle: SharedOracle,
    ) -> (Self, Arc<Mutex<Instant>>) {
        let cut_until = Arc::new(Mutex::new(Instant::now()));
        (Self { inner, caller, weather, cut_until: Arc::clone(&cut_until), oracle }, cut_until)
    }

    fn weather(&self) -> MutexGuard<'_, Weather> {
        self.weather.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When the store can be reached again, if it cannot be now, and whether it says so.
    fn unreachable_until(&self) -> Option<(Instant, bool)> {
        let cut = *self.cut_until.lock().unwrap_or_else(PoisonError::into_inner);
        let (refuses, outage) = self.weather().outage;
        let until = cut.max(outage);
        (until > Instant::now()).then_some((until, refuses && outage >= cut))
    }

    /// Sends a request that happens, or not, whatever becomes of the caller.
    fn call<T: Send + 'static>(
        &self,
        op: &'static str,
        moment: Moment,
        request: impl FnOnce(Link) -> BoxFuture<'static, StoreResult<T>> + Send + 'static,
    ) -> BoxFuture<'static, StoreResult<T>> {
        let journey = self.weather().draw(&self.caller, moment);
        let link = self.clone();
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            tokio::spawn(async move {
                if let Some(answer) = link.travel(op, journey, request).await {
                    let _ = reply.send(answer);
                }
            });
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

    /// The way of a request and of its reply; none if that does not arrive.
    async fn travel<T: Send + 'static>(
        self,
        op: &'static str,
        journey: Journey,
        request: impl FnOnce(Link) -> BoxFuture<'static, StoreResult<T>> + Send + 'static,
    ) -> Option<StoreResult<T>> {
        let Journey { fate, there, back, order } = journey;
        sleep(there).await;
        // Once the weather is fine, nothing old turns up any more.
        let old = there > Duration::from_millis(400);
        if let Some((_, true)) = self.unreachable_until() {
            self.oracle.lock().counts.store_errors += 1;
            return Some(Err(StoreError::no_effect(op, "connection refused")));
        }
        if fate == Fate::RequestLost || (old && self.weather().calm) || self.unreachable_until().is_some() {
            self.oracle.lock().counts.lost_requests += 1;
            return None;
        }
        if fate == Fate::FailsBefore {
            self.oracle.lock().counts.store_errors += 1;
            return Some(Err(StoreError::no_effect(op, "busy")));
        }
        self.oracle.lock().counts.late_requests += u64::from(old);
        let result = request(self.clone()).await;
        if let Some(order) = order {
            let mut weather = self.weather();
            weather.orders.push(order);
            weather.ordered.notify_one();
        }
        sleep(back).await;
        match fate {
            // A reply that is on its way when the store becomes unreachable is lost, too.
            Fate::Answered if self.unreachable_until().is_none() => Some(result),
            Fate::FailsAfter => {
                self.oracle.lock().counts.store_errors += 1;
                Some(Err(StoreError::unknown(op, "connection lost")))
            }
            _ => {
                self.oracle.lock().counts.lost_replies += 1;
                None
            }
        }
    }
}

fn moment_of(write: &OwnershipWrite) -> Moment {
    let by = Some(&write.op.by);
    match (write.owner.as_ref(), write.next.as_ref()) {
        (_, next) if next == by => Moment::Request,
        (None, _) => Moment::Release,
        (owner, _) if owner == by && write.reason != MoveReason::HandedOff => Moment::Claim,
        _ => Moment::Transfer,
    }
}

impl CheckpointStore for Link {
    fn properties(&self) -> StoreProperties {
        let properties = self.inner.properties();
        StoreProperties { notifies: properties.notifies && !self.weather().silent, ..properties }
    }

    fn write_instance<'a>(
        &'a self,
        scope: &'a Scope,
        write: InstanceWrite,
    ) -> BoxFuture<'a, StoreResult<InstanceOutcome>> {
        let (scope, sent, oracle) = (scope.clone(), Instant::now(), self.oracle.clone());
        oracle.lock().beat_sent(&write);
        let moment = match write {
            InstanceWrite::Bury { .. } | InstanceWrite::BuryAbsent { .. } => Moment::Bury,
            _ => Moment::Beat,
        };
        let answer = self.call("write_instance", moment, {
            let write = write.clone();
            move |link| {
                Box::pin(async move {
                    let mut skewed = write.clone();
                    if let InstanceWrite::Bury { victim, age_min, .. } = &mut skewed {
                        let skew = link.weather().skews_ms.get(victim).copied().unwrap_or_default();
                        *age_min = shifted(*age_min, -skew);
                    }
                    let outcome = link.inner.write_instance(&scope, skewed).await?;
                    if matches!(outcome, InstanceOutcome::Applied(_)) {
                        link.weather().skews_ms.insert(write.incarnation().clone(), 0);
                    }
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
        self.call("write_ownership", moment_of(&write), move |link| {
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
        let moment = match write {
            CheckpointWrite::Seal { .. } => Moment::Seal,
            _ => Moment::Checkpoint,
        };
        self.call("write_checkpoint", moment, move |link| {
            Box::pin(async move {
                let outcome = link.inner.write_checkpoint(&scope, write.clone()).await?;
                link.oracle.lock().checkpoint_written(&write, &outcome);
                Ok(outcome)
            })
        })
    }

    fn view<'a>(&'a self, scope: &'a Scope) -> BoxFuture<'a, StoreResult<GroupView>> {
        let scope = scope.clone();
        self.call("view", Moment::View, move |link| {
            Box::pin(async move {
                let mut view = link.inner.view(&scope).await?;
                let weather = link.weather();
                for seen in &mut view.instances {
                    let skew = weather.skews_ms.get(&seen.record.incarnation).copied().unwrap_or_default();
                    seen.age = shifted(seen.age, skew);
                }
                drop(weather);
                Ok(view)
            })
        })
    }

    fn checkpoints<'a>(&'a self, scope: &'a Scope) -> BoxFuture<'a, StoreResult<Vec<CheckpointRecord>>> {
        self.inner.checkpoints(scope)
    }

    fn moves<'a>(&'a self, scope: &'a Scope) -> BoxFuture<'a, StoreResult<Vec<MoveRecord>>> {
        self.inner.moves(scope)
    }

    fn changed<'a>(&'a self, scope: &'a Scope, me: &'a Incarnation, cursor: u64) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if self.weather().silent {
                return std::future::pending().await;
            }
            self.inner.changed(scope, me, cursor).await;
            // A notification does not get through either while the store is out of reach.
            while let Some((until, _)) = self.unreachable_until() {
                sleep_until(until).await;
            }
        })
    }
}

fn shifted(time: Duration, by_ms: i64) -> Duration {
    let by = Duration::from_millis(by_ms.unsigned_abs());
    if by_ms < 0 { time.saturating_sub(by) } else { time + by }
}
