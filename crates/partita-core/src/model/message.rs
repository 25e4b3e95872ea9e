//! The standard properties of a message.

use std::sync::Arc;

use bytes::Bytes;

use super::{Timestamp, Value};

/// What AMQP provides for every message (3.2.4), as far as the producer set it. The hub passes it on and acts on none of it.
#[derive(Clone, PartialEq, Debug, Default)]
#[non_exhaustive]
pub struct MessageProperties {
    /// Identifies the message: a string, ulong, uuid or binary.
    pub message_id: Option<Value>,
    /// Who made it.
    pub user_id: Option<Bytes>,
    /// Where it is meant to go.
    pub to: Option<Arc<str>>,
    /// What it is about.
    pub subject: Option<Arc<str>>,
    /// Where answers go.
    pub reply_to: Option<Arc<str>>,
    /// The message that it belongs to: a string, ulong, uuid or binary.
    pub correlation_id: Option<Value>,
    /// The MIME type of the body.
    pub content_type: Option<Arc<str>>,
    /// How the body is encoded beyond that.
    pub content_encoding: Option<Arc<str>>,
    /// When it is of no more use.
    pub absolute_expiry_time: Option<Timestamp>,
    /// When it was made.
    pub creation_time: Option<Timestamp>,
    /// The group of messages that it belongs to.
    pub group_id: Option<Arc<str>>,
    /// Its place in the group.
    pub group_sequence: Option<u32>,
    /// The group that answers belong to.
    pub reply_to_group_id: Option<Arc<str>>,
}

impl MessageProperties {
    /// About how many bytes of memory it holds.
    pub(super) fn size(&self) -> usize {
        let texts = [
            &self.to,
            &self.subject,
            &self.reply_to,
            &self.content_type,
            &self.content_encoding,
            &self.group_id,
            &self.reply_to_group_id,
        ];
        let texts: usize = texts.iter().filter_map(|text| text.as_deref()).map(str::len).sum();
        let ids = [&self.message_id, &self.correlation_id].into_iter().flatten();
        let ids: usize = ids.map(super::event::value_size).sum();
        size_of::<Self>() + texts + ids + self.user_id.as_ref().map_or(0, Bytes::len)
    }
}
