//! What becomes of an event that was handed over.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::future::{FutureExt as _, Shared};
use tokio::sync::oneshot;

use crate::eventhubs::SendError;

type Outcome = Result<(), SendError>;

/// Ends when the hub has the event for good, or with the reason why it does not. It costs next to nothing and may be dropped:
/// the event is sent all the same.
#[derive(Clone, Debug)]
#[must_use = "an event that could not be sent is told here, and by `flush`"]
pub struct Receipt(Shared<oneshot::Receiver<Outcome>>);

impl Future for Receipt {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        // Nobody tells only if the runtime was shut down with the producer in it.
        Poll::Ready(ready!(self.0.poll_unpin(cx)).unwrap_or(Err(SendError::Closed)))
    }
}

/// Where the outcome of a batch is told. One for all of its events: they arrive all or none.
#[derive(Debug)]
pub(super) struct Teller(oneshot::Sender<Outcome>);

impl Teller {
    pub(super) fn tell(self, outcome: Outcome) {
        // Whoever wanted to know is gone.
        let _ = self.0.send(outcome);
    }
}

pub(super) fn receipt() -> (Teller, Receipt) {
    let (sender, receiver) = oneshot::channel();
    (Teller(sender), Receipt(receiver.shared()))
}
