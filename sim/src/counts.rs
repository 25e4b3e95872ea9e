//! What happened in worlds, counted.

macro_rules! counts {
    ($($field:ident: $name:literal,)*) => {
        /// What happened, counted.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        #[cfg_attr(feature = "cli", derive(serde::Serialize, serde::Deserialize))]
        #[allow(missing_docs)] // The names say it.
        pub struct Counts { $(pub $field: u64,)* }

        impl Counts {
            /// Adds what happened elsewhere.
            pub fn add(&mut self, other: &Self) {
                $(self.$field += other.$field;)*
            }

            /// Every count with its name.
            pub fn entries(&self) -> Vec<(&'static str, u64)> {
                vec![$(($name, self.$field),)*]
            }
        }
    };
}

counts! {
    calls: "calls of handlers",
    events_handled: "events handled",
    duplicates: "events handled again",
    cut_calls: "calls cut off",
    failed_calls: "calls that failed",
    panicked_calls: "calls that panicked",
    blocking_calls: "calls that could not be cancelled",
    checkpoints: "checkpoints",
    fenced: "checkpoints refused by the fence",
    behind: "checkpoints refused as behind",
    claims: "claims",
    handoffs: "hand-offs",
    steals: "steals",
    takeovers: "take-overs from the dead",
    releases: "releases",
    given_up: "partitions given up",
    retakes: "re-takes",
    burials: "burials",
    joins: "joins",
    leaves: "leaves",
    crashes: "crashes",
    freezes: "freezes",
    frozen_calls: "calls frozen with their process",
    flickers: "instances that crash as soon as they have started",
    outages: "store outages",
    cut_offs: "instances cut off from the store",
    lost_requests: "requests lost",
    lost_replies: "replies lost",
    late_requests: "requests that came late",
    store_errors: "errors of the store",
    slow_times: "times of high latency",
    clock_jumps: "clock jumps",
    reader_errors: "errors of readers",
    thefts: "partitions read by a stranger",
    source_outages: "hub outages",
    source_cut_offs: "instances cut off from the hub",
    partitions_added: "partitions added",
    hub_kills: "hubs killed",
    power_cuts: "power cuts of the hub",
    disk_errors: "disk errors of the hub",
    segments_removed: "segments removed by retention",
    drifting_clocks: "machines whose clock ran fast or slow",
    silent_stores: "stores that told nobody of changes",
    seeks: "seeks",
    relaxed_hubs: "hubs that acknowledged before it was durable",
}
