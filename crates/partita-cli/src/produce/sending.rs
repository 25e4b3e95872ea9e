//! Hands events to the buffered producer, and knows where they went.

use partita_core::model::{LastEnqueued, PartitionId};
use partita_sources::eventhubs::{BufferedProducer, EventHubs, Route, SendError};

use super::input::{Chunk, Ready};
use crate::Failure;
use crate::output::counted;

/// Where a partition ended before the first event was sent to it.
#[derive(Clone)]
enum Before {
    NotAsked,
    /// None if the hub does not tell.
    Asked(Option<LastEnqueued>),
}

/// What a partition got.
pub(crate) struct Sent {
    pub(crate) partition: PartitionId,
    pub(crate) events: u64,
    pub(crate) bytes: u64,
    /// Where it ended before; none if the hub does not tell.
    pub(crate) before: Option<LastEnqueued>,
}

/// Events on their way.
pub(crate) struct Sending {
    client: EventHubs,
    producer: BufferedProducer,
    partitions: Vec<PartitionId>,
    before: Vec<Before>,
}

impl Sending {
    pub(crate) fn new(client: EventHubs, partitions: Vec<PartitionId>) -> Self {
        let producer = client.buffered_producer().idempotent_if_taken().stop_on_failure().build();
        let before = vec![Before::NotAsked; partitions.len()];
        Self { client, producer, partitions, before }
    }

    pub(crate) fn producer(&self) -> &BufferedProducer {
        &self.producer
    }

    /// Takes events, and waits while there is no room.
    pub(crate) async fn take(&mut self, chunk: Chunk) -> Result<(), Failure> {
        for ready in chunk {
            self.add(ready).await?;
        }
        Ok(())
    }

    async fn add(&mut self, ready: Ready) -> Result<(), Failure> {
        let partition = &self.partitions[ready.partition];
        let before = &mut self.before[ready.partition];
        if let Before::NotAsked = before {
            *before =
                Before::Asked(self.client.partition(partition).await.ok().map(|described| described.end));
        }
        let route = Route::Partition(partition.clone());
        match self.producer.send_encoded(route, &ready.event).await {
            // What becomes of it is counted, and told at the end.
            Ok(_receipt) => Ok(()),
            Err(SendError::Event { source, .. }) => {
                Err(Failure::Run(format!("line {}: {source}", ready.line)))
            }
            Err(error) => Err(self.failure(error)),
        }
    }

    /// Waits until all events have an outcome.
    pub(crate) async fn finish(&mut self) -> Result<(), Failure> {
        self.producer.flush().await.map_err(|error| self.failure(error))
    }

    /// What is said when it is not waited for.
    pub(crate) fn in_doubt(&self) -> String {
        match self.producer.buffered().0 as u64 {
            0 => "interrupted".to_owned(),
            1 => "interrupted: 1 more event may have arrived or not".to_owned(),
            more => format!("interrupted: {} more may have arrived or not", counted(more, "event")),
        }
    }

    fn failure(&self, error: SendError) -> Failure {
        if !error.may_have_happened() {
            return error.into();
        }
        let outcomes = self.producer.outcomes();
        let failed = outcomes.iter().filter(|of| of.failed_events > 0).map(|of| of.partition.as_str());
        let failed = failed.collect::<Vec<_>>().join(", ");
        let text = format!("{error}; the last events for partition {failed} may have arrived or not");
        // A hub that said something is there.
        match &error {
            SendError::Hub(error) if error.condition().is_some() => Failure::Run(text),
            _ => Failure::Unreachable(text),
        }
    }

    /// What the partitions got that got any.
    pub(crate) fn sent(&self) -> Vec<Sent> {
        let got = self.producer.outcomes().into_iter().filter(|of| of.sent_events > 0);
        let mut sent: Vec<Sent> = got
            .map(|of| {
                let place = self.partitions.iter().position(|known| *known == of.partition);
                let before = match place.map(|place| &self.before[place]) {
                    Some(Before::Asked(end)) => end.clone(),
                    Some(Before::NotAsked) | None => None,
                };
                Sent { partition: of.partition, events: of.sent_events, bytes: of.sent_bytes, before }
            })
            .collect();
        sent.sort_by(|a, b| a.partition.cmp(&b.partition));
        sent
    }
}
