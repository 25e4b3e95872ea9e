//! A hub as an event source.

use futures_util::future::BoxFuture;
use partita_amqp::performative::{Attach, SenderSettleMode, Source};
use partita_core::model::{ConsumerGroup, LastEnqueued, Namespace, PartitionId, Position, Value};
use partita_core::source::{EventSource, HubDescription, PartitionReader, ReadRequest, SourceError};
use partita_dialect::names::link::{EPOCH, RECEIVER_NAME, RUNTIME_METRIC};
use partita_dialect::selector;

use super::client::Client;
use super::reader::Reader;
use super::{EventHubs, EventHubsError, management};

/// The longest name of a receiver that the service takes.
const NAME_CHARS_MAX: usize = 64;

/// Reads a hub over AMQP: Azure Event Hubs, the official emulator, or Partita's own hub.
///
/// Readers share a connection, a thousand of them each. When it is lost they fail, all of them, as something that trying again helps against;
/// whoever opens the next reader connects again. "Latest" is the end of the partition when the reader is opened.
///
/// The service passes over events that it no longer has without a word. The numbers of a partition's events follow one
/// another, so a reader finds every gap by them and tells it. At a start that is no number there is none to compare with: Partita's
/// hub says if it has lost the events there, the service says nothing. A hub with log compaction leaves numbers out on purpose: each of these is told as a gap, too.
///
/// The body of an event shares memory with the events that it arrived with, at most 256 KiB: copy what is kept for long.
#[derive(Clone, Debug)]
pub struct EventHubsSource {
    client: Client,
}

impl EventHubsSource {
    pub(super) fn new(client: Client) -> Self {
        Self { client }
    }

    /// Where a reader that starts at the end starts, so that it can be told and come back to.
    async fn latest(&self, request: &ReadRequest) -> Result<(Position, LastEnqueued), EventHubsError> {
        let end = management::partition(&self.client, &request.partition).await?.end;
        let from = match &end.position {
            Some(last) => Position::after_sequence(last.sequence),
            None => Position::Earliest,
        };
        Ok((from, end))
    }
}

impl EventSource for EventHubsSource {
    fn describe(&self) -> BoxFuture<'_, Result<HubDescription, SourceError>> {
        Box::pin(async {
            let properties = management::hub(&self.client).await?;
            let config = self.client.config();
            Ok(HubDescription {
                namespace: config.namespace.clone(),
                hub: config.hub.clone(),
                stream: properties.stream,
                partitions: properties.partitions,
            })
        })
    }

    fn former_namespaces(&self) -> Vec<Namespace> {
        self.client.config().former_namespace.iter().cloned().collect()
    }

    /// By a reader that is detached at once. It reads beside others, so it disturbs nobody; a partition that somebody has for
    /// themselves refuses it for that, and not for its group.
    fn check_group<'a>(&'a self, group: &'a ConsumerGroup) -> BoxFuture<'a, Result<(), SourceError>> {
        Box::pin(async move {
            let request = ReadRequest {
                group: group.clone(),
                partition: PartitionId::from(0),
                from: Position::Latest,
                owner_level: None,
                name: "partita-group-check".into(),
                prefetch_events: 1,
                prefetch_bytes: 1 << 10,
            };
            self.open(request).await.map(drop)
        })
    }

    fn open(&self, request: ReadRequest) -> BoxFuture<'_, Result<Box<dyn PartitionReader>, SourceError>> {
        Box::pin(async move {
            let (from, end) = match &request.from {
                Position::Latest => {
                    let (from, end) = self.latest(&request).await?;
                    (from, Some(end))
                }
                from => (from.clone(), None),
            };
            // The pump has a queue of its own, of all these bytes, and what waits there shares memory with what it was read
            // with: so that both together hold no more than twice as much.
            let queue = (request.prefetch_events, request.prefetch_bytes / 2);
            let link = self.client.receive(attach(self.client.config().hub.as_str(), &request, &from), queue);
            let reader = Reader::new(link.await?, request.partition, &from, end);
            Ok(Box::new(reader) as Box<dyn PartitionReader>)
        })
    }
}

impl EventSource for EventHubs {
    fn describe(&self) -> BoxFuture<'_, Result<HubDescription, SourceError>> {
        let source = self.source();
        Box::pin(async move { source.describe().await })
    }

    fn former_namespaces(&self) -> Vec<Namespace> {
        self.source().former_namespaces()
    }

    fn open(&self, request: ReadRequest) -> BoxFuture<'_, Result<Box<dyn PartitionReader>, SourceError>> {
        let source = self.source();
        Box::pin(async move { source.open(request).await })
    }
}

/// The link for a reader.
fn attach(hub: &str, request: &ReadRequest, from: &Position) -> Attach {
    let address = format!("{hub}/ConsumerGroups/{}/Partitions/{}", request.group, request.partition);
    let mut attach = Attach::receiver("", &address);
    attach.source = Some(Source { filter: selector::filter(from), ..Source::from(&*address) });
    // No position moves at the hub, so nothing is to be settled.
    attach.snd_settle_mode = SenderSettleMode::Settled;
    attach.desired_capabilities = vec![RUNTIME_METRIC.into()];
    let symbol = |name: &str| Value::Symbol(name.into());
    if let Some(level) = request.owner_level {
        let level = i64::try_from(level.0).unwrap_or(i64::MAX);
        attach.properties.push((symbol(EPOCH), Value::Long(level)));
    }
    let name: String = request.name.chars().take(NAME_CHARS_MAX).collect();
    attach.properties.push((symbol(RECEIVER_NAME), Value::from(name)));
    attach
}

#[cfg(test)]
mod tests {
    use partita_core::model::Epoch;

    use super::*;

    #[test]
    fn a_reader_s_link_says_where_as_whom_and_at_what_level() {
        let request = ReadRequest {
            group: ConsumerGroup::new("alerts"),
            partition: 3.into(),
            from: Position::Earliest,
            owner_level: Some(Epoch(7)),
            name: "x".repeat(100).into(),
            prefetch_events: 1,
            prefetch_bytes: 1,
        };
        let link = attach("homes", &request, &request.from);
        assert_eq!(link.address(), Some("homes/ConsumerGroups/alerts/Partitions/3"));
        assert_eq!(link.property(EPOCH), Some(&Value::Long(7)));
        assert_eq!(link.property(RECEIVER_NAME).and_then(Value::as_str).map(str::len), Some(64));
        let beside = attach("homes", &ReadRequest { owner_level: None, ..request }, &Position::Earliest);
        assert_eq!(beside.property(EPOCH), None);
    }
}
