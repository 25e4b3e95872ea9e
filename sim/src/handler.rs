//! The handler that simulated instances run: it takes a random time and tells the oracle what it does.

use std::time::Duration;

use partita_core::coordination::{RevokeReason, StopReason};
use partita_core::handler::{Context, Handler, HandlerResult, RevokedContext};
use partita_core::model::{Event, PartitionId};
use tokio::time::sleep;

use crate::faults::Setup;
use crate::oracle::{CallId, SharedOracle};

pub(crate) struct SimHandler {
    oracle: SharedOracle,
    rng: fastrand::Rng,
    call_max: Duration,
    slow_max: Option<Duration>,
    partition: PartitionId,
}

impl SimHandler {
    pub(crate) fn new(oracle: SharedOracle, seed: u64, setup: &Setup, partition: PartitionId) -> Self {
        let rng = fastrand::Rng::with_seed(seed);
        Self { oracle, rng, call_max: setup.call, slow_max: setup.slow_call, partition }
    }

    async fn take_a_while(&mut self) {
        let slow = self.slow_max.filter(|_| self.rng.u8(..100) == 0 && !self.oracle.lock().is_calm());
        let time = self.rng.u64(0..=slow.unwrap_or(self.call_max).as_millis() as u64);
        if time > 0 {
            sleep(Duration::from_millis(time)).await;
        }
    }
}

/// Tells the oracle that a call was cut off, if it does not come to its end.
struct Call {
    oracle: SharedOracle,
    id: Option<CallId>,
}

impl Call {
    fn end(mut self) {
        if let Some(id) = self.id.take() {
            self.oracle.lock().call_ended(id);
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            self.oracle.lock().call_cut(id);
        }
    }
}

impl Handler for SimHandler {
    async fn open(&mut self, cx: &Context) -> HandlerResult {
        self.take_a_while().await;
        self.oracle.lock().opened(cx.instance(), &self.partition, cx.epoch());
        Ok(())
    }

    async fn events(&mut self, events: &[Event], cx: &Context) -> HandlerResult {
        let id = self.oracle.lock().call_started(cx.instance(), &self.partition, cx.epoch(), events);
        let call = Call { oracle: self.oracle.clone(), id: Some(id) };
        self.take_a_while().await;
        call.end();
        Ok(())
    }

    async fn stopping(&mut self, _: StopReason, cx: &Context) -> HandlerResult {
        self.oracle.lock().closed(cx.instance(), &self.partition, cx.epoch());
        self.take_a_while().await;
        Ok(())
    }

    async fn revoked(&mut self, _: RevokeReason, cx: &RevokedContext) {
        self.oracle.lock().closed(&cx.instance, &self.partition, cx.epoch);
    }
}
