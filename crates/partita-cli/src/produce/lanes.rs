//! Sends batches, one lane per partition: within a lane one after the other, so that order holds even when a send is tried
//! again; lanes beside each other.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use partita_core::model::{LastEnqueued, PartitionId};
use partita_sources::eventhubs::{AddError, EventBatch, EventHubs, Producer, Route, SendError};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::input::{Chunk, Ready};
use super::progress::Counts;
use crate::Failure;

/// How long a batch that is not full waits for more.
const LINGER: Duration = Duration::from_millis(5);

/// What became of a lane.
pub(crate) struct Lane {
    pub(crate) partition: PartitionId,
    /// Where the partition ended before; none if the hub does not tell.
    pub(crate) before: Option<LastEnqueued>,
    pub(crate) sent: u64,
    batch: Option<EventBatch>,
    /// None once there is no more to send.
    queue: Option<mpsc::Sender<EventBatch>>,
    /// How many events the hub took, and why no more.
    task: Option<JoinHandle<(u64, Result<(), SendError>)>>,
}

/// All lanes of a hub.
pub(crate) struct Lanes {
    client: EventHubs,
    producer: Producer,
    partitions: Vec<PartitionId>,
    lanes: Vec<Option<Lane>>,
    counts: Arc<Counts>,
    /// Whether there are batches that wait for more.
    open: bool,
}

impl Lanes {
    pub(crate) fn new(client: EventHubs, partitions: Vec<PartitionId>, counts: Arc<Counts>) -> Self {
        let lanes = partitions.iter().map(|_| None).collect();
        Self { producer: client.producer(), client, partitions, lanes, counts, open: false }
    }

    /// Waits for events, or for the end of events; none if they do not come soon and batches wait for them.
    pub(crate) async fn wait(&self, read: &mut mpsc::Receiver<Chunk>) -> Option<Option<Chunk>> {
        if self.open { tokio::time::timeout(LINGER, read.recv()).await.ok() } else { Some(read.recv().await) }
    }

    /// Takes events, and waits while lanes are full.
    pub(crate) async fn take(&mut self, chunk: Chunk) -> Result<(), Failure> {
        for ready in chunk {
            self.add(ready).await?;
        }
        Ok(())
    }

    async fn add(&mut self, ready: Ready) -> Result<(), Failure> {
        let at = ready.partition;
        if self.lanes[at].is_none() {
            self.lanes[at] = Some(self.begin(at).await);
        }
        loop {
            if self.batch(at).is_none() {
                let batch = self.producer.batch(Route::Partition(self.partitions[at].clone())).await?;
                if let Some(lane) = &mut self.lanes[at] {
                    lane.batch = Some(batch);
                }
            }
            let Some(batch) = self.batch(at) else { continue };
            match batch.add_encoded(&ready.event) {
                Ok(()) => {
                    self.open = true;
                    return Ok(());
                }
                Err(AddError::Full) => self.push(at).await?,
                Err(error) => return Err(Failure::Run(format!("line {}: {error}", ready.line))),
            }
        }
    }

    fn batch(&mut self, at: usize) -> Option<&mut EventBatch> {
        self.lanes[at].as_mut()?.batch.as_mut()
    }

    async fn begin(&self, at: usize) -> Lane {
        let partition = self.partitions[at].clone();
        let before = self.client.partition(&partition).await.ok().map(|properties| properties.end);
        let (queue, mut batches) = mpsc::channel::<EventBatch>(1);
        let (producer, counts) = (self.producer.clone(), Arc::clone(&self.counts));
        let task = tokio::spawn(async move {
            let mut sent = 0;
            while let Some(batch) = batches.recv().await {
                let (events, bytes) = (batch.len() as u64, batch.size() as u64);
                if let Err(error) = producer.send(batch).await {
                    return (sent, Err(error));
                }
                sent += events;
                counts.sent_events.fetch_add(events, Ordering::Relaxed);
                counts.sent_bytes.fetch_add(bytes, Ordering::Relaxed);
            }
            (sent, Ok(()))
        });
        Lane { partition, before, sent: 0, batch: None, queue: Some(queue), task: Some(task) }
    }

    /// Hands the batch of a lane to its task, once that has room.
    async fn push(&mut self, at: usize) -> Result<(), Failure> {
        let Some(lane) = &mut self.lanes[at] else { return Ok(()) };
        let (Some(batch), Some(queue)) = (lane.batch.take(), &lane.queue) else { return Ok(()) };
        if queue.send(batch).await.is_ok() {
            return Ok(());
        }
        lane.join().await
    }

    /// Sends what there is.
    pub(crate) async fn flush(&mut self) -> Result<(), Failure> {
        self.open = false;
        for at in 0..self.lanes.len() {
            self.push(at).await?;
        }
        Ok(())
    }

    /// Sends what is left and waits for all.
    pub(crate) async fn finish(&mut self) -> Result<(), Failure> {
        let mut done = self.flush().await;
        for lane in self.lanes.iter_mut().flatten() {
            lane.queue = None;
        }
        for lane in self.lanes.iter_mut().flatten() {
            done = done.and(lane.join().await);
        }
        done
    }

    /// Those that were used.
    pub(crate) fn used(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.iter().flatten().filter(|lane| lane.sent > 0)
    }
}

impl Lane {
    /// Waits for the task's end; its error is told once.
    async fn join(&mut self) -> Result<(), Failure> {
        let Some(task) = self.task.take() else { return Ok(()) };
        let (sent, result) =
            task.await.map_err(|error| Failure::Run(format!("sending ended early: {error}")))?;
        self.sent = sent;
        result.map_err(|error| match error.may_have_happened() {
            true => Failure::Unreachable(format!(
                "{error}; the last events for partition {} may have arrived or not",
                self.partition
            )),
            false => error.into(),
        })
    }
}
