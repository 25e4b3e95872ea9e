//! NATS JetStream on disk. The version that is packaged cannot sync before it answers.

use std::collections::VecDeque;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use async_nats::jetstream::{self, Context, consumer, stream};
use bytes::Bytes;
use futures_util::StreamExt;

use super::Peer;
use super::server::{Server, find, free_port, new_dir};
use crate::served::wire::{BATCH_EVENTS, EVENT_BYTES, block_on};

/// Connections that publish, and messages that each has outstanding.
pub(super) const CONNECTIONS: usize = 4;
pub(super) const OUTSTANDING: usize = 20 * BATCH_EVENTS;

const STREAM: &str = "events";

pub(super) struct Nats(Server);

impl Nats {
    async fn connect(&self) -> Context {
        let client = async_nats::connect(format!("127.0.0.1:{}", self.0.port)).await.expect("NATS listens");
        let mut context = jetstream::new(client);
        context.set_timeout(Duration::from_secs(60));
        context
    }
}

impl Peer for Nats {
    const NAME: &'static str = "NATS JetStream";
    const ADVICE: &'static str = "install nats-server";
    const HUB: &'static [&'static str] = &["--fsync", "interval"];

    fn start(dir: &Path) -> Option<Self> {
        let (program, port) = (find("nats-server")?, free_port());
        let mut command = Command::new(program);
        command.args(["-a", "127.0.0.1", "-p", &port.to_string(), "-js", "-sd"]).arg(new_dir(dir, "nats"));
        let nats = Self(Server::start(command, port)?);
        block_on(async {
            let config = stream::Config {
                name: STREAM.to_owned(),
                subjects: vec![format!("{STREAM}.*")],
                storage: stream::StorageType::File,
                ..stream::Config::default()
            };
            nats.connect().await.create_stream(config).await.expect("a stream");
        });
        Some(nats)
    }

    fn send(&self, time: Duration) -> f64 {
        block_on(async {
            let mut contexts = Vec::new();
            for n in 0..CONNECTIONS {
                contexts.push((n, self.connect().await));
            }
            let start = Instant::now();
            let produce = |(n, context): (usize, Context)| async move {
                let (subject, body) = (format!("{STREAM}.{n}"), Bytes::from(vec![b'x'; EVENT_BYTES]));
                let (mut outstanding, mut count) = (VecDeque::new(), 0);
                while start.elapsed() < time {
                    let ack = context.publish(subject.clone(), body.clone()).await;
                    outstanding.push_back(ack.expect("published"));
                    if outstanding.len() >= OUTSTANDING
                        && let Some(oldest) = outstanding.pop_front()
                    {
                        oldest.await.expect("acknowledged");
                        count += 1;
                    }
                }
                for ack in outstanding {
                    ack.await.expect("acknowledged");
                    count += 1;
                }
                count
            };
            let counts = futures_util::future::join_all(contexts.into_iter().map(produce)).await;
            counts.into_iter().sum::<usize>() as f64 / start.elapsed().as_secs_f64()
        })
    }

    fn drain(&self, events: usize) -> f64 {
        block_on(async {
            let stream = self.connect().await.get_stream(STREAM).await.expect("the stream");
            let config = consumer::pull::Config {
                ack_policy: consumer::AckPolicy::None,
                ..consumer::pull::Config::default()
            };
            let reader = stream.create_consumer(config).await.expect("a consumer");
            let start = Instant::now();
            let batches = reader.stream().max_messages_per_batch(10_000).messages();
            let mut messages = batches.await.expect("messages").take(events);
            let mut count = 0;
            while let Some(message) = messages.next().await {
                count += usize::from(message.expect("a message").payload.len() == EVENT_BYTES);
            }
            count as f64 / start.elapsed().as_secs_f64()
        })
    }
}
