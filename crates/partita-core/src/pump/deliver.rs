//! The ways to give a handler, brought to one form for the pump.

use std::future::Future;
use std::sync::Arc;

use super::gate::Gate;
use crate::handler::{Context, Handler, HandlerResult, RevokedContext};
use crate::model::{BoxError, Event, PartitionId, RevokeReason, StopReason};
use crate::report::Operation;

/// A handler as the pump drives it.
pub(crate) trait Deliver: Send + 'static {
    fn open(&mut self, cx: &Context) -> impl Future<Output = HandlerResult> + Send;

    /// Hands the events over, as long as the gate is open.
    fn deliver(
        &mut self,
        events: &[Event],
        cx: &Context,
        gate: &Gate,
    ) -> impl Future<Output = HandlerResult> + Send;

    fn error(
        &mut self,
        operation: Operation,
        error: &BoxError,
        cx: &Context,
    ) -> impl Future<Output = ()> + Send;

    fn stopping(&mut self, reason: StopReason, cx: &Context) -> impl Future<Output = HandlerResult> + Send;

    fn revoked(&mut self, reason: RevokeReason, cx: &RevokedContext) -> impl Future<Output = ()> + Send;
}

/// Makes a handler for a partition.
#[diagnostic::on_unimplemented(
    message = "the processor has no handler yet",
    note = "call `.on_event(..)`, `.on_batch(..)` or `.handler(..)` before `.build()` or `.run_until(..)`"
)]
pub(crate) trait Factory: Send + Sync + 'static {
    type Handler: Deliver;

    /// Whether the handler takes events one at a time.
    const ONE_BY_ONE: bool;

    fn create(&self, partition: &PartitionId) -> Self::Handler;
}

// All of them async: a method that panics before it returns its future then panics where that is caught.
impl<T: Handler> Deliver for T {
    async fn open(&mut self, cx: &Context) -> HandlerResult {
        Handler::open(self, cx).await
    }

    async fn deliver(&mut self, events: &[Event], cx: &Context, gate: &Gate) -> HandlerResult {
        if gate.may_start() {
            gate.begin(events);
            self.events(events, cx).await?;
            gate.handled(events.len());
        }
        Ok(())
    }

    async fn error(&mut self, operation: Operation, error: &BoxError, cx: &Context) {
        Handler::error(self, operation, error, cx).await;
    }

    async fn stopping(&mut self, reason: StopReason, cx: &Context) -> HandlerResult {
        Handler::stopping(self, reason, cx).await
    }

    async fn revoked(&mut self, reason: RevokeReason, cx: &RevokedContext) {
        Handler::revoked(self, reason, cx).await;
    }
}

/// A factory of full handlers.
#[derive(Debug)]
pub struct FullFactory<F>(pub(crate) F);

impl<F, H> Factory for FullFactory<F>
where
    F: Fn(&PartitionId) -> H + Send + Sync + 'static,
    H: Handler,
{
    type Handler = H;
    const ONE_BY_ONE: bool = false;

    fn create(&self, partition: &PartitionId) -> H {
        (self.0)(partition)
    }
}

/// A closure called with one event at a time.
#[derive(Debug)]
pub struct OnEvent<F>(pub(crate) Arc<F>);

/// A closure called with a batch.
#[derive(Debug)]
pub struct OnBatch<F>(pub(crate) Arc<F>);

impl<F, Fut> Factory for OnEvent<F>
where
    F: Fn(Event, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = HandlerResult> + Send + 'static,
{
    type Handler = EachEvent<F>;
    const ONE_BY_ONE: bool = true;

    fn create(&self, _: &PartitionId) -> EachEvent<F> {
        EachEvent(Arc::clone(&self.0))
    }
}

impl<F, Fut> Factory for OnBatch<F>
where
    F: Fn(Vec<Event>, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = HandlerResult> + Send + 'static,
{
    type Handler = EachBatch<F>;
    const ONE_BY_ONE: bool = false;

    fn create(&self, _: &PartitionId) -> EachBatch<F> {
        EachBatch(Arc::clone(&self.0))
    }
}

pub(crate) struct EachBatch<F>(Arc<F>);

impl<F, Fut> Handler for EachBatch<F>
where
    F: Fn(Vec<Event>, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = HandlerResult> + Send + 'static,
{
    fn events(&mut self, events: &[Event], cx: &Context) -> impl Future<Output = HandlerResult> + Send {
        (self.0)(events.to_vec(), cx.clone())
    }
}

/// Not a [`Handler`]: it knows after each event how far it came, and asks the gate before each.
pub(crate) struct EachEvent<F>(Arc<F>);

impl<F, Fut> Deliver for EachEvent<F>
where
    F: Fn(Event, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = HandlerResult> + Send + 'static,
{
    async fn open(&mut self, _: &Context) -> HandlerResult {
        Ok(())
    }

    async fn deliver(&mut self, events: &[Event], cx: &Context, gate: &Gate) -> HandlerResult {
        for event in events {
            if !gate.may_start() {
                break;
            }
            gate.begin(std::slice::from_ref(event));
            (self.0)(event.clone(), cx.clone()).await?;
            gate.handled(1);
        }
        Ok(())
    }

    async fn error(&mut self, _: Operation, _: &BoxError, _: &Context) {}

    async fn stopping(&mut self, _: StopReason, _: &Context) -> HandlerResult {
        Ok(())
    }

    async fn revoked(&mut self, _: RevokeReason, _: &RevokedContext) {}
}
