//! Redis Streams that sync before they answer.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::streams::StreamRangeReply;

use super::Peer;
use super::server::{Server, find, free_port, new_dir};
use crate::served::hub::PARTITIONS;
use crate::served::wire::{BATCH_EVENTS, EVENT_BYTES, block_on};

/// Batches in one pipeline: each connection has so many outstanding.
pub(super) const PIPELINED: usize = 10;

/// Entries of one read.
const READ_EVENTS: usize = 1_000;

pub(super) struct Redis(Server);

impl Redis {
    async fn connect(&self) -> MultiplexedConnection {
        let client = redis::Client::open(format!("redis://127.0.0.1:{}/", self.0.port)).expect("an address");
        client.get_multiplexed_async_connection().await.expect("Redis listens")
    }
}

impl Peer for Redis {
    const NAME: &'static str = "Redis Streams";
    const ADVICE: &'static str = "install redis-server";
    const HUB: &'static [&'static str] = &[];

    fn start(dir: &Path) -> Option<Self> {
        let (program, port) = (find("redis-server")?, free_port());
        let mut command = Command::new(program);
        let port_text = port.to_string();
        command.args(["--port", &port_text, "--bind", "127.0.0.1", "--appendonly", "yes"]);
        command.args(["--appendfsync", "always", "--save", "", "--auto-aof-rewrite-percentage", "0"]);
        command.arg("--dir").arg(new_dir(dir, "redis"));
        Server::start(command, port).map(Self)
    }

    fn send(&self, time: Duration) -> f64 {
        block_on(async {
            let mut connections = Vec::new();
            for stream in 0..PARTITIONS {
                connections.push((stream, self.connect().await));
            }
            let start = Instant::now();
            let produce = |(stream, mut connection): (u32, MultiplexedConnection)| async move {
                let mut pipe = redis::pipe();
                for _ in 0..PIPELINED * BATCH_EVENTS {
                    let entry = pipe.cmd("XADD").arg(format!("s{stream}")).arg("*").arg("b");
                    entry.arg(&[b'x'; EVENT_BYTES][..]).ignore();
                }
                let mut count = 0;
                while start.elapsed() < time {
                    let () = pipe.query_async(&mut connection).await.expect("Redis answers");
                    count += PIPELINED * BATCH_EVENTS;
                }
                count
            };
            let counts = futures_util::future::join_all(connections.into_iter().map(produce)).await;
            counts.into_iter().sum::<usize>() as f64 / start.elapsed().as_secs_f64()
        })
    }

    fn drain(&self, events: usize) -> f64 {
        block_on(async {
            let mut connections = Vec::new();
            for stream in 0..PARTITIONS {
                connections.push((stream, self.connect().await));
            }
            let start = Instant::now();
            let read = |(stream, mut connection): (u32, MultiplexedConnection)| async move {
                let (mut count, mut from) = (0, "-".to_owned());
                while count < events / PARTITIONS as usize {
                    let mut range = redis::cmd("XRANGE");
                    range.arg(format!("s{stream}")).arg(&from).arg("+").arg("COUNT").arg(READ_EVENTS);
                    let found: StreamRangeReply =
                        range.query_async(&mut connection).await.expect("Redis answers");
                    let Some(last) = found.ids.last() else { break };
                    from = format!("({}", last.id);
                    count += found.ids.len();
                }
                count
            };
            let counts = futures_util::future::join_all(connections.into_iter().map(read)).await;
            counts.into_iter().sum::<usize>() as f64 / start.elapsed().as_secs_f64()
        })
    }
}
