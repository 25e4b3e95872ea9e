//! Events in and out as a user sends and reads them: the real binary, a real hub, real pipes.
#![cfg(unix)]

mod client;
mod connect;
mod consume;
mod damage;
mod displaced;
mod produce;
mod show;
#[allow(dead_code)]
#[path = "../serve/support.rs"]
mod support;
