//! The processor's promises beyond the documents: whole processors on the memory store and the memory hub.

mod checkpoints;
mod churn;
mod faults;
mod gaps;
mod handlers;
mod hardship;
mod moves;
mod options;
mod past;
mod races;
mod records;
mod run;
mod seeks;
#[path = "../support/mod.rs"]
mod support;
