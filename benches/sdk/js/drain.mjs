// Reads a hub from the beginning with the official SDK and says how many events per second that were, from the first batch on:
// drain.mjs CONNECTION_STRING HUB PARTITIONS EVENTS BATCH PREFETCH

import { EventHubConsumerClient, earliestEventPosition } from "@azure/event-hubs";

const [connection, hub, ...numbers] = process.argv.slice(2);
const [partitions, events, batch, prefetch] = numbers.map(Number);
let count = 0;
let first;
let before = 0;

const client = new EventHubConsumerClient("$Default", connection, hub);
const handlers = {
  processEvents: async (received) => {
    count += received.length;
    if (first === undefined && received.length > 0) {
      first = performance.now();
      before = count;
    }
    if (count >= events) {
      console.log(Math.round(((count - before) * 1000) / (performance.now() - first)));
      // Its connection ends with the process.
      process.exit(0);
    }
  },
  processError: async (error) => {
    console.error(error.message);
    process.exit(1);
  },
};
for (let partition = 0; partition < partitions; partition += 1) {
  client.subscribe(String(partition), handlers, {
    startPosition: earliestEventPosition,
    maxBatchSize: batch,
    maxWaitTimeInSeconds: 1,
    prefetchCount: prefetch,
  });
}
