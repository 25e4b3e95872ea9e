//! Identifiers as newtypes, so that a hub is never taken for a group.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Wraps the text as it is.
            pub fn new(text: impl AsRef<str>) -> Self {
                Self(Arc::from(text.as_ref()))
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        text_id!(@common $name);
    };
    (@common $name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", self.as_str())
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self::new(text)
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self::new(text)
            }
        }
    };
}

text_id! {
    /// The namespace a hub lives in, such as `contoso.servicebus.windows.net`.
    Namespace
}
text_id! {
    /// The name of a hub.
    HubName
}
text_id! {
    /// Identifies one life of a hub's data. A hub that was reset has a new one, which makes checkpoints of the
    /// former life recognisable.
    StreamId
}
text_id! {
    /// Names a running processor. It need not be unique for correctness (every start is a new [`Incarnation`]),
    /// but people read it in logs and tables.
    InstanceId
}

impl InstanceId {
    /// `prefix` and a random UUID.
    pub fn generate(prefix: &str) -> Self {
        let bits = (fastrand::u128(..) & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
        let hex = format!("{bits:032x}");
        Self::new(format!(
            "{prefix}-{}-{}-{}-{}-{}",
            &hex[..8],
            &hex[8..12],
            &hex[12..16],
            &hex[16..20],
            &hex[20..]
        ))
    }
}

impl InstanceId {
    /// How people are told of it: without all but the first part of a UUID at its end.
    pub fn short(&self) -> &str {
        let text = self.as_str();
        let mut dashes = text.rmatch_indices('-').map(|(at, _)| at);
        let ends = [dashes.next(), dashes.next(), dashes.next(), dashes.next(), dashes.next()];
        let [Some(e), Some(d), Some(c), Some(b), Some(a)] = ends else { return text };
        let lengths = [b - a, c - b, d - c, e - d, text.len() - e];
        if lengths == [9, 5, 5, 5, 13] { &text[..b] } else { text }
    }
}

/// A partition of a hub. Ordered as numbers are where ids are numbers without leading zeros, so `2` precedes `10`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PartitionId(Arc<str>);

impl PartitionId {
    /// Wraps the text as it is.
    pub fn new(text: impl AsRef<str>) -> Self {
        Self(Arc::from(text.as_ref()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

text_id!(@common PartitionId);

impl From<u32> for PartitionId {
    fn from(number: u32) -> Self {
        Self::new(number.to_string())
    }
}

impl Ord for PartitionId {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.len().cmp(&other.0.len()).then_with(|| self.0.cmp(&other.0))
    }
}

impl PartialOrd for PartitionId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A consumer group: one independent view of a hub's events. Names compare without regard to case, as the service
/// compares them; the spelling is kept.
#[derive(Clone)]
pub struct ConsumerGroup {
    spelled: Arc<str>,
    folded: Arc<str>,
}

impl ConsumerGroup {
    /// The name of the group that every hub has.
    pub const DEFAULT: &'static str = "$Default";

    /// Wraps the name.
    pub fn new(text: impl AsRef<str>) -> Self {
        let spelled: Arc<str> = Arc::from(text.as_ref());
        let lower = spelled.to_lowercase();
        let folded = if *lower == *spelled { Arc::clone(&spelled) } else { Arc::from(lower) };
        Self { spelled, folded }
    }

    /// The name as it was spelled.
    pub fn as_str(&self) -> &str {
        &self.spelled
    }

    /// The name in lower case: what a store uses as a key.
    pub fn folded(&self) -> &str {
        &self.folded
    }
}

text_id!(@common ConsumerGroup);

impl Default for ConsumerGroup {
    fn default() -> Self {
        Self::new(Self::DEFAULT)
    }
}

impl PartialEq for ConsumerGroup {
    fn eq(&self, other: &Self) -> bool {
        self.folded == other.folded
    }
}

impl Eq for ConsumerGroup {}

impl std::hash::Hash for ConsumerGroup {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.folded.hash(state);
    }
}

impl PartialOrd for ConsumerGroup {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ConsumerGroup {
    fn cmp(&self, other: &Self) -> Ordering {
        self.folded.cmp(&other.folded)
    }
}

/// What a set of cooperating instances shares: namespace, hub and consumer group.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Scope {
    /// The namespace of the hub.
    pub namespace: Namespace,
    /// The hub.
    pub hub: HubName,
    /// The consumer group.
    pub group: ConsumerGroup,
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.namespace, self.hub, self.group)
    }
}

/// Counts the owners of a partition. It rises at every change of owner and is the fence of checkpoints.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Epoch(pub u64);

impl Epoch {
    /// The epoch of the next owner.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One life of an instance: its id and 128 random bits, new at every process start and after every burial, so that
/// a name that comes back is never mistaken for the life that was declared dead.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Incarnation {
    id: InstanceId,
    nonce: u128,
}

impl Incarnation {
    /// The life of `id` told apart by `nonce`.
    pub fn new(id: InstanceId, nonce: u128) -> Self {
        Self { id, nonce }
    }

    /// The instance.
    pub fn id(&self) -> &InstanceId {
        &self.id
    }

    /// What tells this life from others of the same instance.
    pub fn nonce(&self) -> u128 {
        self.nonce
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{:08x}", self.id, (self.nonce >> 96) as u32)
    }
}

impl fmt::Debug for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_sort_as_numbers() {
        let mut ids: Vec<PartitionId> = ["10", "2", "0", "1"].map(PartitionId::from).to_vec();
        ids.sort();
        assert_eq!(ids.iter().map(PartitionId::as_str).collect::<Vec<_>>(), ["0", "1", "2", "10"]);
    }

    #[test]
    fn groups_compare_without_case_and_keep_their_spelling() {
        assert_eq!(ConsumerGroup::new("$Default"), ConsumerGroup::new("$default"));
        assert_eq!(ConsumerGroup::default().as_str(), "$Default");
    }

    #[test]
    fn short_ids_lose_most_of_their_uuid() {
        let id = InstanceId::generate("my-host");
        assert_eq!(id.short().len(), "my-host-12345678".len());
        assert!(id.as_str().starts_with(id.short()));
        for kept in ["plain", "a-b-c-d-e-f", "", "1234-1234-1234-1234-123456789012"] {
            assert_eq!(InstanceId::new(kept).short(), kept);
        }
    }

    #[test]
    fn generated_ids_are_a_prefix_and_a_version_4_uuid() {
        let id = InstanceId::generate("host");
        let parts: Vec<&str> = id.as_str().split('-').collect();
        assert_eq!(parts[0], "host");
        assert_eq!(parts[1..].iter().map(|p| p.len()).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
        assert!(parts[3].starts_with('4'));
        assert!(matches!(parts[4].as_bytes()[0], b'8' | b'9' | b'a' | b'b'));
        assert_ne!(id, InstanceId::generate("host"));
    }
}
