//! Disposition (2.7.6).

use super::field::composite;
use super::{DeliveryState, Role};

composite! {
    /// What became of deliveries.
    pub Disposition = 0x15 {
        /// Of whoever writes this.
        role: Role,
        first: u32,
        /// `None`: as `first`.
        last: Option<u32>,
        settled: bool = false,
        state: Option<DeliveryState>,
        batchable: bool = false,
    }
}
