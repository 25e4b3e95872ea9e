// The SDK's own event processor with its blob checkpoint store, and what feeds it.

import { earliestEventPosition, EventHubConsumerClient } from "@azure/event-hubs";
import { BlobCheckpointStore } from "@azure/eventhubs-checkpointstore-blob";
import { ContainerClient } from "@azure/storage-blob";
import { producer, say, sleep, told } from "./client.js";

export async function processor(context) {
  const store = new BlobCheckpointStore(new ContainerClient(context.blob.connection_string, context.blob.container));
  const client = new EventHubConsumerClient("$Default", context.connection_string, "processors", store, {
    retryOptions: { retryDelayInMs: 500 },
    loadBalancingOptions: {
      strategy: "greedy",
      updateIntervalInMs: context.interval_ms,
      partitionOwnershipExpirationIntervalInMs: context.expiry_ms,
    },
  });
  const subscription = client.subscribe(
    {
      processEvents: async (events, partition) => {
        for (const event of events) {
          say({ event: [partition.partitionId, event.body] });
          if (event.body % 10 === 0) await partition.updateCheckpoint(event);
        }
      },
      processError: async (error, partition) => console.error(partition.partitionId, error.name, error.message),
    },
    { startPosition: earliestEventPosition, maxWaitTimeInSeconds: 1 },
  );
  await told(); // until the harness closes the pipe
  await subscription.close();
  await client.close();
}

export async function feeder(context) {
  let stop = false;
  told().then(() => (stop = true));
  const client = producer(context, "processors");
  for (let number = 0; !stop; number++) {
    for (let partition = 0; partition < context.hubs.processors; partition++) {
      await client.sendBatch([{ body: number }], { partitionId: String(partition) });
      say({ sent: [String(partition), number] });
    }
    await sleep(200);
  }
  await client.close();
}
