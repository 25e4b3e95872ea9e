//! A link that sends, on the connection's side and on the producer's.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use partita_amqp::connection::{Connection, DeliveryRange, LinkId, Outgoing, SendError, SessionId};
use partita_amqp::performative::{Attach, DeliveryState};
use partita_core::source::SourceErrorKind;
use tokio::sync::{Notify, mpsc, oneshot};

use super::command::{Command, Reply};
use super::slot::Room;
use crate::eventhubs::EventHubsError;

#[derive(Debug)]
pub(super) struct Gone {
    gone: AtomicBool,
    wake: Arc<Notify>,
}

/// The producer's end of a link. Dropping it detaches the link.
#[derive(Debug)]
pub(crate) struct SenderEnd {
    link: LinkId,
    commands: mpsc::Sender<Command>,
    gone: Arc<Gone>,
    /// What the hub said when it attached the link.
    pub(crate) granted: Box<Attach>,
}

impl SenderEnd {
    /// Sends a message, in the order of the calls, and waits for its outcome.
    pub(crate) async fn send(&self, format: u32, payload: Bytes) -> Result<(), EventHubsError> {
        let (reply, outcome) = oneshot::channel();
        let lost = || EventHubsError::retriable("the connection to the hub was lost");
        let command = Command::Send { link: self.link, format, payload, reply };
        self.commands.send(command).await.map_err(|_| lost())?;
        outcome.await.unwrap_or_else(|_| Err(lost().uncertain()))
    }

    /// Whether the connection is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.commands.is_closed() || self.gone.gone.load(Ordering::Relaxed)
    }
}

impl Drop for SenderEnd {
    fn drop(&mut self) {
        self.gone.gone.store(true, Ordering::Relaxed);
        self.gone.wake.notify_one();
    }
}

#[derive(Debug)]
struct Waiting {
    format: u32,
    payload: Bytes,
    reply: Reply<()>,
}

/// The connection's end of a link.
#[derive(Debug)]
pub(super) struct Sender {
    pub(super) session: SessionId,
    /// What to call it in an error.
    pub(super) what: String,
    /// Until it is attached.
    opening: Option<(mpsc::Sender<Command>, Reply<SenderEnd>)>,
    granted: Option<Box<Attach>>,
    gone: Arc<Gone>,
    /// Its place on the connection, until the hub has let it go.
    _room: Room,
    next_tag: u64,
    /// Not sent yet.
    waiting: VecDeque<Waiting>,
    /// Sent, without an outcome.
    sent: VecDeque<(u32, Reply<()>)>,
}

impl Sender {
    pub(super) fn new(
        session: SessionId,
        what: String,
        wake: Arc<Notify>,
        commands: mpsc::Sender<Command>,
        room: Room,
        reply: Reply<SenderEnd>,
    ) -> Self {
        Self {
            session,
            what,
            opening: Some((commands, reply)),
            granted: None,
            gone: Arc::new(Gone { gone: AtomicBool::new(false), wake }),
            _room: room,
            next_tag: 0,
            waiting: VecDeque::new(),
            sent: VecDeque::new(),
        }
    }

    pub(super) fn attached(&mut self, granted: Box<Attach>) {
        self.granted = Some(granted);
    }

    /// Hands the producer its end, if the hub granted the link.
    pub(super) fn settle_opening(&mut self, link: LinkId) {
        if self.granted.as_ref().is_some_and(|granted| granted.target.is_some())
            && let Some(granted) = self.granted.take()
            && let Some((commands, reply)) = self.opening.take()
        {
            // If nobody waits any more, dropping the end detaches the link.
            let _ = reply.send(Ok(SenderEnd { link, commands, gone: self.gone.clone(), granted }));
        }
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone.gone.load(Ordering::Relaxed) && self.waiting.is_empty() && self.sent.is_empty()
    }

    pub(super) fn push(&mut self, format: u32, payload: Bytes, reply: Reply<()>) {
        self.waiting.push_back(Waiting { format, payload, reply });
    }

    /// Sends what there is credit for.
    pub(super) fn send(&mut self, link: LinkId, connection: &mut Connection) {
        while let Some(first) = self.waiting.front() {
            // Whoever has given up has perhaps sent it again.
            if first.reply.is_closed() {
                self.waiting.pop_front();
                continue;
            }
            let message = Outgoing { format: first.format, ..Outgoing::unsettled(self.next_tag) };
            let result = connection.send(link, message, first.payload.clone());
            if matches!(result, Err(error) if error.is_temporary() || error == SendError::Detached) {
                return;
            }
            let Some(first) = self.waiting.pop_front() else { return };
            match result {
                Ok(id) => {
                    self.next_tag += 1;
                    self.sent.push_back((id, first.reply));
                }
                Err(error) => {
                    let text = format!("the events cannot be sent: {error}");
                    let _ = first.reply.send(Err(EventHubsError::fatal(text)));
                }
            }
        }
    }

    /// Passes outcomes on.
    pub(super) fn outcome(&mut self, ids: DeliveryRange, state: Option<&DeliveryState>) {
        let outcome =
            match state {
                Some(DeliveryState::Accepted) => Ok(()),
                Some(DeliveryState::Rejected(error)) => {
                    let error = EventHubsError::of_peer("the send", error.as_deref());
                    // What is refused for good was not written. What went wrong for now may have been, in part or whole: a hub
                    // whose disk failed may find it there when it starts again.
                    Err(if error.is_retriable() { error.uncertain() } else { error })
                }
                Some(DeliveryState::Received { .. }) => return,
                _ => Err(EventHubsError::retriable("the hub did not take the events, and did not say why")
                    .uncertain()),
            };
        self.sent = std::mem::take(&mut self.sent)
            .into_iter()
            .filter_map(|(id, reply)| {
                if ids.contains(id) {
                    let _ = reply.send(outcome.clone());
                    None
                } else {
                    Some((id, reply))
                }
            })
            .collect();
    }

    /// Fails everything that waits.
    pub(super) fn end(self, error: &EventHubsError) {
        // A producer has no ownership to lose, only a link.
        let kind = match error.kind() {
            SourceErrorKind::OwnershipLost | SourceErrorKind::PositionGone => SourceErrorKind::Fatal,
            kind => kind,
        };
        let error = error.clone().with_kind(kind);
        if let Some((_, reply)) = self.opening {
            let _ = reply.send(Err(error.clone()));
        }
        for waiting in self.waiting {
            let _ = waiting.reply.send(Err(error.clone()));
        }
        for (_, reply) in self.sent {
            let _ = reply.send(Err(error.clone().uncertain()));
        }
        self.gone.gone.store(true, Ordering::Relaxed);
    }
}
