//! The pump fed by hand: its clock stands still or jumps as the test wants, and nobody coordinates.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::{Notify, mpsc};

use super::deliver::FullFactory;
use super::standing::Standing;
use super::state::{Command, PumpState};
use super::{Pump, PumpConfig, Start};
use crate::coordination::PumpEvent;
use crate::handler::{Context, Handler, HandlerResult};
use crate::model::{
    CancelReason, ConsumerGroup, DrainReason, Epoch, Event, HubName, InstanceId, Namespace, PartitionId,
    Position, Scope, StopReason, Tick,
};
use crate::options::Options;
use crate::report::{Hooks, Reporter};
use crate::runtime::Runtime;
use crate::source::MemoryHub;

const S: Duration = Duration::from_secs(1);

/// A clock to be set, and tasks on the test's runtime.
#[derive(Default)]
struct Clock(AtomicU64);

impl Clock {
    fn pass(&self, time: Duration) {
        self.0.fetch_add(u64::try_from(time.as_nanos()).unwrap(), Ordering::Relaxed);
    }
}

impl Runtime for Clock {
    fn now(&self) -> Tick {
        Tick(self.0.load(Ordering::Relaxed))
    }

    fn seed(&self) -> u64 {
        7
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        tokio::spawn(task);
    }

    fn spawn_coordination(&self, task: BoxFuture<'static, ()>) -> std::io::Result<()> {
        self.spawn(task);
        Ok(())
    }
}

struct Quiet;

impl Hooks for Quiet {}

/// What a call does, with the clock.
type Deed = Arc<dyn Fn(Arc<Clock>) -> BoxFuture<'static, ()> + Send + Sync>;

struct Doing {
    clock: Arc<Clock>,
    events: Deed,
    stopping: Deed,
}

impl Handler for Doing {
    async fn events(&mut self, _: &[Event], _: &Context) -> HandlerResult {
        (self.events)(Arc::clone(&self.clock)).await;
        Ok(())
    }

    async fn stopping(&mut self, _: StopReason, _: &Context) -> HandlerResult {
        (self.stopping)(Arc::clone(&self.clock)).await;
        Ok(())
    }
}

struct Bench {
    clock: Arc<Clock>,
    shared: Arc<PumpState>,
    reports: mpsc::Receiver<(PartitionId, Epoch, PumpEvent)>,
}

fn nothing() -> Deed {
    Arc::new(|_| Box::pin(async {}))
}

/// A pump with one event to handle, a lease of 4 s and a hard stop after 5 s.
fn pump(events: Deed, stopping: Deed) -> Bench {
    let clock = Arc::new(Clock::default());
    let hub = MemoryHub::new("hub", 1);
    let partition = PartitionId::from(0);
    hub.append(&partition, Event::builder("event"));
    let scope =
        Scope { namespace: Namespace::new("n"), hub: HubName::new("hub"), group: ConsumerGroup::default() };
    let (reports_sender, reports) = mpsc::channel(64);
    let standing = Arc::new(Standing::default());
    standing.set_hard_stop(Tick(0) + 5 * S);
    let shared = Arc::new(PumpState::new(
        Arc::new(scope),
        InstanceId::new("i"),
        partition,
        Epoch(1),
        Tick(0) + 4 * S,
        standing,
        reports_sender,
    ));
    let runtime: Arc<dyn Runtime> = Arc::clone(&clock) as _;
    let config = Arc::new(PumpConfig {
        source: Arc::new(hub.source()),
        reporter: Reporter::start(InstanceId::new("i"), Arc::new(Quiet), None, &*runtime),
        runtime,
        options: Options::default(),
        hooks: Arc::new(Quiet),
    });
    let handler_clock = Arc::clone(&clock);
    let factory = FullFactory(move |_: &PartitionId| Doing {
        clock: Arc::clone(&handler_clock),
        events: Arc::clone(&events),
        stopping: Arc::clone(&stopping),
    });
    let start = Start::AskedFor(Position::Earliest);
    let pump = Pump::new(config, Arc::new(factory), Arc::clone(&shared), start);
    tokio::spawn(pump.run());
    Bench { clock, shared, reports }
}

/// Lets all tasks run until they wait.
async fn idle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

/// Set when it is dropped.
struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_stood_still_past_the_hard_stop_does_not_go_on() {
    let (thaw, went_on, cut) = (Arc::new(Notify::new()), Arc::default(), Arc::default());
    let deed: Deed = {
        let (thaw, went_on, cut) = (Arc::clone(&thaw), Arc::clone(&went_on), Arc::clone(&cut));
        Arc::new(move |_| {
            let (thaw, went_on, cut) = (Arc::clone(&thaw), Arc::clone(&went_on), Arc::clone(&cut));
            Box::pin(async move {
                let _dropped = Dropped(cut);
                thaw.notified().await;
                AtomicBool::store(&went_on, true, Ordering::Relaxed);
            })
        })
    };
    let bench = pump(deed, nothing());
    idle().await;
    // The process stands still. When it goes on, the call is ready, and the coordination has not cut it off yet.
    bench.clock.pass(6 * S);
    thaw.notify_one();
    idle().await;
    assert!(!AtomicBool::load(&went_on, Ordering::Relaxed), "the call went on without a lease");
    assert!(AtomicBool::load(&cut, Ordering::Relaxed), "the call was not cut off");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_stood_still_within_a_poll_is_cut_off_at_its_next_await() {
    let (cut, begun) = (Arc::default(), Arc::new(Mutex::new(0)));
    let deed: Deed = {
        let (cut, begun) = (Arc::clone(&cut), Arc::clone(&begun));
        Arc::new(move |clock| {
            let (cut, begun) = (Arc::clone(&cut), Arc::clone(&begun));
            Box::pin(async move {
                let _dropped = Dropped(cut);
                *begun.lock().unwrap() += 1;
                clock.pass(6 * S);
                std::future::pending::<()>().await;
            })
        })
    };
    let _bench = pump(deed, nothing());
    idle().await;
    assert_eq!(*begun.lock().unwrap(), 1);
    assert!(AtomicBool::load(&cut, Ordering::Relaxed), "the call was not cut off");
}

#[tokio::test(start_paused = true)]
async fn a_drain_time_that_ends_as_stopping_begins_does_not_cut_stopping_off() {
    let flushed = Arc::new(AtomicBool::new(false));
    let stopping: Deed = {
        let flushed = Arc::clone(&flushed);
        Arc::new(move |_| {
            let flushed = Arc::clone(&flushed);
            Box::pin(async move {
                tokio::time::sleep(S).await;
                flushed.store(true, Ordering::Relaxed);
            })
        })
    };
    let mut bench = pump(nothing(), stopping);
    idle().await;
    bench.shared.set_command(Command::Drain(DrainReason::HandOff));
    idle().await;
    // The coordination has not heard yet that the call has ended.
    bench.shared.cut(CancelReason::DrainTime);
    loop {
        match bench.reports.recv().await {
            Some((_, _, PumpEvent::Drained { cancelled, .. })) => {
                assert!(!cancelled, "stopping was cut off");
                break;
            }
            Some(_) => {}
            None => panic!("the pump ended without a word"),
        }
    }
    assert!(flushed.load(Ordering::Relaxed));
}

#[tokio::test(start_paused = true)]
async fn stopping_is_still_cut_off_after_a_drain_time_of_its_own_and_with_the_lease() {
    for lease_ends in [false, true] {
        let forever: Deed = Arc::new(|_| Box::pin(std::future::pending()));
        let mut bench = pump(nothing(), forever);
        idle().await;
        bench.shared.set_command(Command::Drain(DrainReason::HandOff));
        idle().await;
        let began = tokio::time::Instant::now();
        if lease_ends {
            bench.clock.pass(6 * S);
            bench.shared.cut(CancelReason::Lost);
        }
        loop {
            match bench.reports.recv().await {
                Some((_, _, PumpEvent::Drained { cancelled, .. })) => {
                    assert!(cancelled);
                    break;
                }
                Some(_) => {}
                None => panic!("the pump ended without a word"),
            }
        }
        let took = began.elapsed();
        assert!(took <= Options::default().drain_time && (took < S) == lease_ends, "{took:?}");
    }
}
