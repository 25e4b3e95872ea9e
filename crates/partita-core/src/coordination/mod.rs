//! The ownership protocol.

mod timing;

pub use timing::{Timing, TimingError};
