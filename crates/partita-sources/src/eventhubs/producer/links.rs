//! Links to the places that are sent to, attached when they are needed.

use std::collections::HashMap;
use std::sync::Arc;

use partita_amqp::performative::Attach;
use partita_core::model::PartitionId;
use tokio::sync::Mutex;

use crate::eventhubs::EventHubsError;
use crate::eventhubs::client::{Client, SenderEnd};

/// What a hub takes that does not say.
const MESSAGE_BYTES_MAX: u64 = 1024 * 1024;

/// Links of one producer; one per partition, and one to the hub, which chooses.
#[derive(Debug, Default)]
pub(super) struct Links(Mutex<HashMap<Option<PartitionId>, Arc<SenderEnd>>>);

impl Links {
    /// The link to a partition or to the hub, attached if there is none.
    pub(super) async fn get(
        &self,
        client: &Client,
        partition: Option<&PartitionId>,
    ) -> Result<Arc<SenderEnd>, EventHubsError> {
        let mut links = self.0.lock().await;
        let partition = partition.cloned();
        if let Some(link) = links.get(&partition)
            && !link.is_closed()
        {
            return Ok(link.clone());
        }
        let link = Arc::new(attach(client, partition.as_ref()).await?);
        links.insert(partition, link.clone());
        Ok(link)
    }
}

/// Attaches a link to a partition, or to the hub.
pub(super) async fn attach(
    client: &Client,
    partition: Option<&PartitionId>,
) -> Result<SenderEnd, EventHubsError> {
    client.produce(Attach::sender("", &address(client, partition))).await
}

/// The address of a partition, or of the hub.
pub(super) fn address(client: &Client, partition: Option<&PartitionId>) -> String {
    let hub = client.config().hub.as_str();
    match partition {
        Some(partition) => format!("{hub}/Partitions/{partition}"),
        None => hub.to_owned(),
    }
}

/// How large a message may be.
pub(super) fn message_bytes_max(link: &SenderEnd) -> usize {
    let max = link.granted.max_message_size.filter(|max| *max > 0).unwrap_or(MESSAGE_BYTES_MAX);
    usize::try_from(max).unwrap_or(usize::MAX)
}
