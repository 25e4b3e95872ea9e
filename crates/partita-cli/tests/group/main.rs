//! `partita status`, `moves` and `plan`, with real processors on a real hub and a store in a file.
#![cfg(unix)]

mod fleet;
mod mistakes;
mod plan;
mod status;
#[allow(dead_code)]
#[path = "../serve/support.rs"]
mod support;
mod watch;
