//! The served hub as a user meets it: the real binary, real sockets, real files.
#![cfg(unix)]

mod commands;
mod hostile;
mod kills;
mod mistakes;
mod network;
mod sentences;
mod start;
mod starts;
mod support;
mod terminal;
mod tour;
