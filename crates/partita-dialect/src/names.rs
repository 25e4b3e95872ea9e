//! Names that hub and clients have in common.

/// Annotations of an event.
pub mod annotation {
    /// The event's number in its partition: a long.
    pub const SEQUENCE_NUMBER: &str = "x-opt-sequence-number";
    /// Which life of a geo-replicated partition the number is of: an int, -1 where there is no replication.
    pub const SEQUENCE_NUMBER_EPOCH: &str = "x-opt-sequence-number-epoch";
    /// The event's place in its partition: a string.
    pub const OFFSET: &str = "x-opt-offset";
    /// When the hub accepted the event: a timestamp.
    pub const ENQUEUED_TIME: &str = "x-opt-enqueued-time";
    /// The key that chose the partition: a string.
    pub const PARTITION_KEY: &str = "x-opt-partition-key";
    /// Which idempotent producer sent the event: a long.
    pub const PRODUCER_ID: &str = "com.microsoft:producer-id";
    /// Which of its incarnations: a short.
    pub const PRODUCER_EPOCH: &str = "com.microsoft:producer-epoch";
    /// The producer's number of the event: an int.
    pub const PRODUCER_SEQUENCE: &str = "com.microsoft:producer-sequence-number";
}

/// Properties of links.
pub mod link {
    /// The owner level of an exclusive reader: a long.
    pub const EPOCH: &str = "com.microsoft:epoch";
    /// What the reader is called, for others to see.
    pub const RECEIVER_NAME: &str = "com.microsoft:receiver-name";
    /// Asks for the end of the partition with each event.
    pub const RUNTIME_METRIC: &str = "com.microsoft:enable-receiver-runtime-metric";
    /// Asks for an idempotent producer, as a capability.
    pub const IDEMPOTENT: &str = "com.microsoft:idempotent-producer";
}

/// Nodes that answer requests.
pub mod node {
    /// Takes tokens.
    pub const CBS: &str = "$cbs";
    /// Tells what hubs and partitions are like.
    pub const MANAGEMENT: &str = "$management";
}

/// What `$management` can be asked about.
pub mod entity {
    /// A hub.
    pub const HUB: &str = "com.microsoft:eventhub";
    /// A partition.
    pub const PARTITION: &str = "com.microsoft:partition";
}

/// Kinds of tokens that `$cbs` takes.
pub mod token {
    /// A shared access signature.
    pub const SAS: &str = "servicebus.windows.net:sastoken";
    /// A token of an identity provider.
    pub const JWT: &str = "jwt";
}

/// What Partita's hub says beside the service's words. Clients that do not know it pass over it.
pub mod own {
    /// Property of a reader's link: the first number that was to be delivered and is lost for good: a long.
    pub const LOST_FROM: &str = "partita:lost-from";
    /// Property of a reader's link: the number with which reading goes on after it: a long.
    pub const LOST_NEXT: &str = "partita:lost-next";
    /// Of a hub, from `$management`: which life of its data this is: a string.
    pub const STREAM: &str = "partita_stream";
    /// Of a partition, from `$management`: the last event that a reader gets, where those after it are lost and that was
    /// accepted: a long.
    pub const LAST_READABLE: &str = "partita_last_readable_sequence_number";
}
