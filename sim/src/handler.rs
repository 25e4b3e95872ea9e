//! The handlers of simulated instances: any handler, watched by the oracle; and the one that simulations of Partita itself
//! run, which takes a random time, fails now and then, and sometimes cannot be cancelled.

use std::time::Duration;

use partita_core::handler::{Context, Handler, HandlerResult, RevokedContext};
use partita_core::model::{Event, InstanceId, PartitionId, Position, SequenceNumber};
use partita_core::processor::Operation;
use partita_core::processor::{RevokeReason, StopReason};
use partita_core::store::BoxError;
use tokio::time::sleep;

use crate::faults::Setup;
use crate::oracle::{CallId, SharedOracle};
use crate::process::block;

/// How far back a handler goes at most, in events.
const SEEK_BACK_MAX: i64 = 60;

/// A handler that the oracle watches.
pub(crate) struct Watched<H> {
    pub(crate) inner: H,
    pub(crate) oracle: SharedOracle,
}

/// Tells the oracle that a call was cut off, if it does not come to its end.
struct Call {
    oracle: SharedOracle,
    id: Option<CallId>,
}

impl Call {
    fn end(mut self, result: &HandlerResult) {
        if let Some(id) = self.id.take() {
            match result {
                Ok(()) => self.oracle.lock().call_ended(id),
                Err(_) => self.oracle.lock().call_failed(id),
            }
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            if std::thread::panicking() {
                let mut oracle = self.oracle.lock();
                oracle.counts.panicked_calls += 1;
                oracle.call_failed(id);
            } else {
                self.oracle.lock().call_cut(id);
            }
        }
    }
}

impl<H: Handler> Handler for Watched<H> {
    async fn open(&mut self, cx: &Context) -> HandlerResult {
        self.inner.open(cx).await?;
        self.oracle.lock().opened(cx.instance(), cx.partition(), cx.epoch());
        Ok(())
    }

    async fn events(&mut self, events: &[Event], cx: &Context) -> HandlerResult {
        let id = self.oracle.lock().call_started(cx.instance(), cx.partition(), cx.epoch(), events);
        let call = Call { oracle: self.oracle.clone(), id: Some(id) };
        let result = self.inner.events(events, cx).await;
        call.end(&result);
        result
    }

    async fn error(&mut self, operation: Operation, error: &BoxError, cx: &Context) {
        self.inner.error(operation, error, cx).await;
    }

    async fn stopping(&mut self, reason: StopReason, cx: &Context) -> HandlerResult {
        self.oracle.lock().closed(cx.instance(), cx.partition(), cx.epoch(), true);
        self.inner.stopping(reason, cx).await
    }

    async fn revoked(&mut self, reason: RevokeReason, cx: &RevokedContext) {
        self.oracle.lock().closed(&cx.instance, &cx.partition, cx.epoch, false);
        self.inner.revoked(reason, cx).await;
    }
}

pub(crate) struct SimHandler {
    oracle: SharedOracle,
    rng: fastrand::Rng,
    setup: Setup,
    instance: InstanceId,
    partition: PartitionId,
}

impl SimHandler {
    pub(crate) fn new(
        oracle: SharedOracle,
        seed: u64,
        setup: &Setup,
        instance: &InstanceId,
        partition: &PartitionId,
    ) -> Self {
        let rng = fastrand::Rng::with_seed(seed);
        Self { oracle, rng, setup: setup.clone(), instance: instance.clone(), partition: partition.clone() }
    }

    fn draw(&mut self, most: Duration) -> Duration {
        Duration::from_millis(self.rng.u64(0..=most.as_millis() as u64))
    }

    /// So many times in a thousand, as long as there are faults.
    fn happens(&mut self, per_mille: u16) -> bool {
        per_mille > 0 && self.rng.u16(..1_000) < per_mille && !self.oracle.lock().is_calm()
    }

    /// Goes on somewhere else after this call, where nothing is passed over that was never handled.
    fn seek(&mut self, cx: &Context) {
        let first_unhandled = self.oracle.lock().first_unhandled(&self.partition);
        let target = self.rng.i64((first_unhandled - SEEK_BACK_MAX).max(0)..=first_unhandled);
        self.oracle.lock().sought(&self.instance, &self.partition, target);
        cx.seek(Position::at_sequence(SequenceNumber(target)));
    }

    async fn take_a_while(&mut self) {
        let slow = self.setup.slow_call.and_then(|(per_mille, most)| self.happens(per_mille).then_some(most));
        let time = self.draw(slow.unwrap_or(self.setup.call));
        if !time.is_zero() {
            sleep(time).await;
        }
    }
}

impl Handler for SimHandler {
    async fn open(&mut self, _: &Context) -> HandlerResult {
        self.take_a_while().await;
        if self.happens(self.setup.failing_calls) {
            return Err("simulated failure to open".into());
        }
        Ok(())
    }

    async fn events(&mut self, _: &[Event], cx: &Context) -> HandlerResult {
        if self.happens(self.setup.extras.seeks) {
            self.seek(cx);
        }
        let blocks =
            self.setup.blocking_call.and_then(|(per_mille, most)| self.happens(per_mille).then_some(most));
        if let Some(most) = blocks {
            let time = self.draw(most);
            self.oracle.lock().call_blocks(&self.instance, &self.partition);
            block(time).await;
        }
        self.take_a_while().await;
        if self.happens(self.setup.failing_calls) {
            if self.rng.u8(..10) == 0 {
                // As a panic, but without the message on the terminal.
                std::panic::resume_unwind(Box::new("simulated panic"));
            }
            return Err("simulated failure".into());
        }
        Ok(())
    }

    async fn stopping(&mut self, _: StopReason, _: &Context) -> HandlerResult {
        self.take_a_while().await;
        Ok(())
    }
}
