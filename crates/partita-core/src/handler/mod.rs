//! What a user writes: a closure per event or per batch, or the full handler with its whole life.

mod context;

use std::future::Future;

pub(crate) use context::OwnedPartition;
pub use context::{CheckpointError, CheckpointFuture, Context, RevokedContext};

use crate::model::{BoxError, Event, RevokeReason, StopReason};
use crate::report::Operation;

/// What a handler's calls answer. `?` turns any error into it.
pub type HandlerResult = Result<(), BoxError>;

/// The whole life of a handler on one partition.
///
/// `open`, then `events` any number of times, then exactly one of `stopping` and `revoked`. If `open` fails, neither
/// is called and a new handler is tried later. For one partition none of these overlap; different partitions run
/// concurrently. `error` is for information and makes no such promise: it may follow a call that failed half-way.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler",
    label = "not a `Handler`",
    note = "write `impl Handler for MyHandler` with `async fn events(&mut self, events: &[Event], cx: &Context) -> HandlerResult`",
    note = "`.handler(..)` takes a factory: `.handler(|partition| MyHandler::new())`; a closure that handles events goes to `.on_event(|event, cx| async move {{ Ok(()) }})` or `.on_batch(..)`"
)]
pub trait Handler: Send + 'static {
    /// The partition is ours; nothing was delivered yet.
    fn open(&mut self, cx: &Context) -> impl Future<Output = HandlerResult> + Send {
        let _ = cx;
        async { Ok(()) }
    }

    /// One or more events, in order (none only with `call_on_empty`). Events up to one that was checkpointed count as
    /// handled even if the call then fails; the rest is delivered again or passed over, as the failure policy says.
    fn events(&mut self, events: &[Event], cx: &Context) -> impl Future<Output = HandlerResult> + Send;

    /// A call failed, or the reader did. Recovery is Partita's business.
    fn error(
        &mut self,
        operation: Operation,
        error: &BoxError,
        cx: &Context,
    ) -> impl Future<Output = ()> + Send {
        let _ = (operation, error, cx);
        async {}
    }

    /// The last call while the partition is still ours: the place to flush and, with manual checkpoints, to checkpoint.
    fn stopping(&mut self, reason: StopReason, cx: &Context) -> impl Future<Output = HandlerResult> + Send {
        let _ = (reason, cx);
        async { Ok(()) }
    }

    /// The last call, after the partition was lost: somebody else may already read it, so nothing can be checkpointed.
    fn revoked(&mut self, reason: RevokeReason, cx: &RevokedContext) -> impl Future<Output = ()> + Send {
        let _ = (reason, cx);
        async {}
    }
}
