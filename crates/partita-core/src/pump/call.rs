//! One call of user code: guarded against panics, cut off on demand, with reading going on beside it.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::task::Poll;

use futures_util::FutureExt;

use super::gate::Gate;
use super::prefetch::ReadAhead;
use super::state::PumpState;
use crate::model::{BoxError, CancelReason};
use crate::source::SourceError;

/// How a call ended.
pub(super) enum Called<T> {
    Returned(T),
    Panicked(BoxError),
    /// It was cut off.
    Cut,
}

impl Called<Result<(), BoxError>> {
    /// The error of a call that returned one or panicked.
    pub(super) fn failure(self) -> Option<BoxError> {
        match self {
            Self::Returned(Ok(())) | Self::Cut => None,
            Self::Returned(Err(error)) | Self::Panicked(error) => Some(error),
        }
    }
}

/// What cuts a call off.
#[derive(Clone, Copy)]
pub(super) struct Limits<'a> {
    shared: &'a PumpState,
    gate: &'a Gate,
    /// Whether the call ends with the lease.
    leased: bool,
    /// Whether the coordination counts its drain time.
    drained: bool,
}

impl<'a> Limits<'a> {
    /// For a call that started with a valid lease.
    pub(super) fn leased(shared: &'a PumpState, gate: &'a Gate) -> Self {
        Self { shared, gate, leased: true, drained: true }
    }

    /// For a call that is made although the lease is over.
    pub(super) fn unleased(shared: &'a PumpState, gate: &'a Gate) -> Self {
        Self { leased: false, ..Self::leased(shared, gate) }
    }

    /// For a call whose drain time is not that of the call before.
    pub(super) fn with_its_own_drain_time(self) -> Self {
        Self { drained: false, ..self }
    }

    /// Whether the call must not go on.
    fn are_passed(&self) -> bool {
        let cut = match self.drained {
            true => self.shared.is_cut(),
            false => self.shared.is_cut_because(CancelReason::Lost),
        };
        cut || (self.leased && self.shared.standing.is_over(self.gate.now()))
    }
}

/// Runs a call until it ends or is cut off. The call is polled first, so that one that is ready at once costs nothing
/// more.
pub(super) async fn call<T>(limits: Limits<'_>, call: impl Future<Output = T>) -> Called<T> {
    call_reading(limits, call, None).await.0
}

/// Like [`call`], and reads ahead while the call is pending. Tells if the reader failed.
pub(super) async fn call_reading<T>(
    limits: Limits<'_>,
    call: impl Future<Output = T>,
    ahead: Option<ReadAhead<'_>>,
) -> (Called<T>, Option<SourceError>) {
    let mut call = pin!(AssertUnwindSafe(call).catch_unwind());
    let mut ahead = pin!(ahead.map(ReadAhead::read));
    let mut ahead_ended = false;
    let mut failed = None;
    let mut changed = pin!(None);
    let mut began = false;
    let called = poll_fn(|cx| {
        // Whoever begins a call has looked at the lease. Before it goes on the limits are looked at again: the process may
        // have stood still, and the coordination, which would cut it off, may not have run since.
        if began && limits.are_passed() && !planted!(FrozenCallGoesOn) {
            return Poll::Ready(Called::Cut);
        }
        began = true;
        if let Poll::Ready(result) = call.as_mut().poll(cx) {
            return Poll::Ready(match result {
                Ok(value) => Called::Returned(value),
                Err(panic) => Called::Panicked(panic_text(panic).into()),
            });
        }
        if !ahead_ended
            && let Some(read) = ahead.as_mut().as_pin_mut()
            && let Poll::Ready(result) = read.poll(cx)
        {
            ahead_ended = true;
            failed = result.err();
        }
        loop {
            // Again: the process may have stood still, or the handler blocked, within the poll.
            if limits.are_passed() {
                return Poll::Ready(Called::Cut);
            }
            if changed.is_none() {
                changed.set(Some(limits.shared.changed.notified()));
            }
            match changed.as_mut().as_pin_mut().map(|changed| changed.poll(cx)) {
                Some(Poll::Ready(())) => changed.set(None),
                _ => return Poll::Pending,
            }
        }
    })
    .await;
    (called, failed)
}

fn panic_text(panic: Box<dyn Any + Send>) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "of an unknown kind".to_owned());
    format!("the handler panicked: {text}")
}
