// The few helpers that all roles share.

import { createInterface } from "node:readline";
import { EventHubConsumerClient, EventHubProducerClient, earliestEventPosition } from "@azure/event-hubs";

export class NotOffered extends Error {}

export function say(line) {
  process.stdout.write(JSON.stringify(line) + "\n");
}

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

/** The harness's next line; undefined when it has closed the pipe. */
export async function told() {
  const { value, done } = await lines.next();
  return done ? undefined : JSON.parse(value);
}

// The SDK's own delay between retries is 30 s.
const retryOptions = { retryDelayInMs: 500, maxRetries: 10 };
export const once = { retryOptions: { maxRetries: 0, timeoutInMs: 20_000 } };

export function producer(context, hub, options = {}) {
  return new EventHubProducerClient(context.connection_string, hub, { retryOptions, ...options });
}

export function consumer(context, hub, options = {}) {
  return new EventHubConsumerClient("$Default", context.connection_string, hub, { retryOptions, ...options });
}

/** Sends events as one batch. */
export async function send(context, hub, events, target = {}) {
  const client = producer(context, hub);
  try {
    await client.sendBatch(events, target);
  } finally {
    await client.close();
  }
}

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export async function until(condition, seconds, what) {
  const deadline = Date.now() + seconds * 1000;
  while (!condition()) {
    if (Date.now() > deadline) throw new Error(`not within ${seconds} s: ${what()}`);
    await sleep(20);
  }
}

/** Reads one partition in the background. `events` are those so far, `errors` what went wrong. */
export class Reader {
  events = [];
  errors = [];

  constructor(context, hub, partition, options = {}, client = consumer(context, hub)) {
    this.client = client;
    this.subscription = client.subscribe(
      partition,
      {
        processEvents: async (events, partition) => {
          this.events.push(...events);
          this.info = partition.lastEnqueuedEventProperties;
        },
        processError: async (error) => void this.errors.push(error),
      },
      { startPosition: earliestEventPosition, maxBatchSize: 100, maxWaitTimeInSeconds: 1, ...options },
    );
  }

  /** Waits for this many events; gives them. */
  async take(count, seconds = 20) {
    await until(() => this.events.length >= count, seconds, () => `${this.events.length} events, errors: ${this.errors}`);
    return this.events;
  }

  /** Waits for an error; gives it. */
  async error(seconds = 30) {
    await until(() => this.errors.length, seconds, () => `no error; ${this.events.length} events`);
    return this.errors[0];
  }

  async close() {
    await this.subscription.close();
    await this.client.close();
  }
}

/** Reads this many events. */
export async function read(context, hub, partition, count, options) {
  const reader = new Reader(context, hub, partition, options);
  try {
    return await reader.take(count);
  } finally {
    await reader.close();
  }
}
