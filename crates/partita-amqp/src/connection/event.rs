//! What happened on a connection.

use std::ops::RangeInclusive;

use bytes::Bytes;

use super::{LinkId, SessionId};
use crate::performative::{Attach, DeliveryState, DeliveryTag, Error, Open};

/// The number of a delivery, within its session and direction. After the highest comes 0.
pub type DeliveryId = u32;

/// What happened.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum Event {
    /// The peer is open, and so are we.
    Opened(Box<Open>),
    /// A session is there, whoever began it.
    Begun(SessionId),
    /// The peer starts a link: answer it with [`answer_attach`](super::Connection::answer_attach).
    Attaching {
        /// The new link.
        link: LinkId,
        /// What the peer wants.
        attach: Box<Attach>,
    },
    /// The peer answered our attach. If it refuses, the terminus is missing and [`Event::Detached`] follows.
    Attached {
        /// The link.
        link: LinkId,
        /// What the peer grants.
        attach: Box<Attach>,
    },
    /// The peer set the credit of a link on which we send.
    Credit {
        /// The link.
        link: LinkId,
        /// How much is left, counting what is under way.
        credit: u32,
        /// Whether we shall use it up at once, by sending or by [`drained`](super::Connection::drained).
        drain: bool,
    },
    /// A session that had no window left has one again, or finished a message that waited for it: its links can send.
    Window(SessionId),
    /// A message arrived.
    Delivery(Delivery),
    /// A message arrived that is larger than the link allows, and nothing of it was kept. Say so with
    /// [`settle`](super::Connection::settle), or [`detach`](super::Connection::detach) the link.
    TooLarge {
        /// On which link.
        link: LinkId,
        /// Its number in its session.
        id: DeliveryId,
        /// Whether the sender expects no outcome.
        settled: bool,
        /// How large it is.
        size: u64,
    },
    /// The sender has used up or given up the credit that we asked it to drain.
    Drained(LinkId),
    /// The peer says what became of messages that we sent: all of this link in the range.
    Outcome {
        /// The link.
        link: LinkId,
        /// Which.
        ids: DeliveryRange,
        /// What became of them, if the peer says so.
        state: Option<DeliveryState>,
        /// Whether the peer forgets about them. If not, it waits for [`settle`](super::Connection::settle).
        settled: bool,
    },
    /// A link is gone: by the peer, or because the peer broke a limit. Said once per link.
    Detached {
        /// The link.
        link: LinkId,
        /// Why.
        error: Option<Error>,
        /// False if the peer might attach it again.
        closed: bool,
    },
    /// A session is gone, and all of its links, by the peer or because the peer broke a rule.
    Ended {
        /// The session.
        session: SessionId,
        /// Why.
        error: Option<Error>,
    },
    /// The connection is gone. Nothing follows.
    Closed {
        /// Why.
        error: Option<Error>,
        /// Whether the peer said so.
        by_peer: bool,
    },
}

/// A message that arrived.
#[derive(Clone, PartialEq, Debug)]
pub struct Delivery {
    /// On which link.
    pub link: LinkId,
    /// Its number in its session, for [`settle`](super::Connection::settle).
    pub id: DeliveryId,
    /// What the sender calls it.
    pub tag: DeliveryTag,
    /// Of the message; 0 is AMQP's own.
    pub format: u32,
    /// Whether the sender expects no outcome.
    pub settled: bool,
    /// The encoded message. If it came in one frame, it shares the memory of what was read.
    pub payload: Bytes,
}

/// A message to be sent, without its payload.
#[derive(Clone, PartialEq, Debug)]
pub struct Outgoing {
    /// What we call it; unique on its link until it is settled.
    pub tag: DeliveryTag,
    /// Of the message; 0 is AMQP's own.
    pub format: u32,
    /// Whether we want no outcome, where the link's mode leaves the choice.
    pub settled: bool,
}

impl Outgoing {
    /// A message of AMQP's own format that wants an outcome.
    pub fn unsettled(tag: impl Into<DeliveryTag>) -> Self {
        Self { tag: tag.into(), format: 0, settled: false }
    }

    /// A message of AMQP's own format that wants none.
    pub fn settled(tag: impl Into<DeliveryTag>) -> Self {
        Self { tag: tag.into(), format: 0, settled: true }
    }
}

/// Deliveries that follow one another, both ends included. The last may be a lower number, as they begin again at 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeliveryRange {
    /// The first.
    pub first: DeliveryId,
    /// The last.
    pub last: DeliveryId,
}

impl DeliveryRange {
    /// Whether `id` is one of them.
    pub fn contains(self, id: DeliveryId) -> bool {
        id.wrapping_sub(self.first) <= self.last.wrapping_sub(self.first)
    }

    /// Each of them.
    pub fn iter(self) -> impl Iterator<Item = DeliveryId> {
        (0..=self.last.wrapping_sub(self.first)).map(move |step| self.first.wrapping_add(step))
    }
}

impl From<DeliveryId> for DeliveryRange {
    fn from(id: DeliveryId) -> Self {
        Self { first: id, last: id }
    }
}

impl From<RangeInclusive<DeliveryId>> for DeliveryRange {
    fn from(ids: RangeInclusive<DeliveryId>) -> Self {
        Self { first: *ids.start(), last: *ids.end() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_goes_on_after_the_highest_number() {
        let range = DeliveryRange { first: u32::MAX - 1, last: 1 };
        assert_eq!(range.iter().collect::<Vec<_>>(), [u32::MAX - 1, u32::MAX, 0, 1]);
        assert!(range.contains(0) && range.contains(u32::MAX) && !range.contains(2));
        assert!(DeliveryRange::from(5).contains(5) && !DeliveryRange::from(5).contains(6));
    }
}
