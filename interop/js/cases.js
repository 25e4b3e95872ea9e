// The cases, each a small program of its own. A case returns a remark for the table, or nothing.

import assert from "node:assert/strict";
import {
  EventHubBufferedProducerClient,
  EventHubConsumerClient,
  EventHubProducerClient,
  earliestEventPosition,
  latestEventPosition,
} from "@azure/event-hubs";
import WebSocket from "ws";
import { Reader, consumer, once, producer, read, say, send, sleep, told, until } from "./client.js";

const bodies = (events) => events.map((event) => event.body);
const numbered = (word, count) => Array.from({ length: count }, (_, n) => ({ body: `${word}-${n}` }));

/** Awaits something that must fail with an error of one of these codes; gives it. */
async function refused(promise, ...codes) {
  const late = sleep(40_000).then(() => new Error("no error within 40 s"));
  const error = await Promise.race([promise.then(() => new Error("it was not refused")).catch((error) => error), late]);
  assert.ok(codes.includes(error.code), `another error than expected: ${error.code} ${error.message}`);
  return error;
}

// ---- properties ------------------------------------------------------------------------------------------------

export async function hub_properties(context) {
  const client = producer(context, "properties");
  const found = await client.getEventHubProperties();
  assert.equal(found.name, "properties");
  assert.deepEqual(found.partitionIds, ["0", "1", "2", "3"]);
  assert.ok(Math.abs(Date.now() - found.createdOn.getTime()) < 86_400_000, `created ${found.createdOn}`);
  assert.deepEqual(await client.getPartitionIds(), found.partitionIds);
  await client.close();
}

export async function partition_properties(context) {
  const client = producer(context, "properties");
  const empty = await client.getPartitionProperties("1");
  assert.deepEqual([empty.isEmpty, empty.lastEnqueuedSequenceNumber], [true, -1]);
  await send(context, "properties", numbered("one", 3), { partitionId: "2" });
  const found = await client.getPartitionProperties("2");
  const last = (await read(context, "properties", "2", 3))[2];
  assert.equal(found.eventHubName, "properties");
  assert.equal(found.partitionId, "2");
  assert.deepEqual([found.isEmpty, found.beginningSequenceNumber, found.lastEnqueuedSequenceNumber], [false, 0, 2]);
  assert.equal(String(found.lastEnqueuedOffset), String(last.offset));
  assert.equal(found.lastEnqueuedOnUtc.getTime(), last.enqueuedTimeUtc.getTime());
  await client.close();
}

// ---- sending ---------------------------------------------------------------------------------------------------

export async function send_single(context) {
  const client = producer(context, "single");
  for (let n = 0; n < 3; n++) await client.sendBatch([{ body: `single-${n}` }], { partitionId: "0" });
  await client.close();
  assert.deepEqual(bodies(await read(context, "single", "0", 3)), ["single-0", "single-1", "single-2"]);
}

export async function send_batch(context) {
  const client = producer(context, "batches");
  const batch = await client.createBatch({ partitionId: "0" });
  for (const event of numbered("batch", 500)) assert.ok(batch.tryAdd(event));
  await client.sendBatch(batch);

  const full = await client.createBatch({ partitionId: "1" });
  while (full.tryAdd({ body: Buffer.alloc(10_000, "x") }));
  assert.ok(full.count >= 90 && full.count <= 105, `${full.count} events of 10 kB in a batch of 1 MiB`);
  await client.sendBatch(full);
  await client.close();
  assert.deepEqual(bodies(await read(context, "batches", "0", 500)), bodies(numbered("batch", 500)));
  assert.equal((await read(context, "batches", "1", full.count)).length, full.count);
}

export async function send_by_key(context) {
  for (const [key, partition] of Object.entries(context.keys)) {
    await send(context, "keys", [{ body: `key ${key}` }], { partitionKey: key });
    const reader = new Reader(context, "keys", partition);
    const mine = () => reader.events.find((event) => event.body === `key ${key}`);
    await until(mine, 20, () => `key ${key} is not on partition ${partition}`);
    assert.equal(mine().partitionKey, key);
    await reader.close();
  }
}

export async function send_to_partition(context) {
  for (const partitionId of "0123") await send(context, "partitions", [{ body: `to ${partitionId}` }], { partitionId });
  for (const id of "0123") assert.deepEqual(bodies(await read(context, "partitions", id, 1)), [`to ${id}`]);
}

export async function buffered_producer(context) {
  const done = {};
  const failures = [];
  const client = new EventHubBufferedProducerClient(context.connection_string, "buffered", {
    onSendEventsSuccessHandler: ({ events, partitionId }) => events.forEach((event) => (done[event.body] = partitionId)),
    onSendEventsErrorHandler: ({ error }) => failures.push(error),
  });
  for (const key of Object.keys(context.keys)) await client.enqueueEvent({ body: key }, { partitionKey: key });
  await client.flush();
  await client.close();
  assert.deepEqual(failures, []);
  // The client chose the partition by its own hash; the hub's says the same.
  assert.deepEqual(done, context.keys);
}

// ---- receiving -------------------------------------------------------------------------------------------------

const all = bodies(numbered("position", 5));
let sent;

/** Five events on a partition, 20 ms apart, sent once; gives them as received. */
async function positions(context) {
  if (sent) return sent;
  const client = producer(context, "positions");
  for (const event of numbered("position", 5)) {
    await client.sendBatch([event], { partitionId: "0" });
    await sleep(20);
  }
  await client.close();
  sent = await read(context, "positions", "0", 5);
  return sent;
}

async function from(context, startPosition, expected) {
  const found = bodies(await read(context, "positions", "0", expected.length, { startPosition }));
  assert.deepEqual(found, expected, `from ${JSON.stringify(startPosition)}`);
}

export async function receive_earliest(context) {
  assert.deepEqual(bodies(await positions(context)), all);
  await from(context, earliestEventPosition, all);
}

export async function receive_latest(context) {
  await send(context, "positions", [{ body: "before" }], { partitionId: "1" });
  const reader = new Reader(context, "positions", "1", { startPosition: latestEventPosition });
  // The reader is attached some time after it was started: send until one comes through.
  for (let n = 0; n < 100 && reader.events.length === 0; n++) {
    await send(context, "positions", [{ body: `after-${n}` }], { partitionId: "1" });
    await sleep(100);
  }
  const found = bodies(await reader.take(1));
  assert.ok(found.every((body) => body.startsWith("after")), found.join());
  await reader.close();
}

export async function receive_offset(context) {
  const { offset } = (await positions(context))[2];
  await from(context, { offset }, all.slice(3));
  await from(context, { offset, isInclusive: true }, all.slice(2));
}

export async function receive_sequence(context) {
  const { sequenceNumber } = (await positions(context))[2];
  await from(context, { sequenceNumber }, all.slice(3));
  await from(context, { sequenceNumber, isInclusive: true }, all.slice(2));
}

export async function receive_time(context) {
  const { enqueuedTimeUtc } = (await positions(context))[2];
  await from(context, { enqueuedOn: enqueuedTimeUtc }, all.slice(3));
  await from(context, { enqueuedOn: enqueuedTimeUtc.getTime() - 1 }, all.slice(2));
}

export async function content_round_trip(context) {
  const properties = { text: "na\u00efve \u2603", yes: true, int: 42, long: 2 ** 40, negative: -7, double: 0.25 };
  const ids = { messageId: "m-1", correlationId: "c-1", contentType: "application/octet-stream" };
  await send(
    context,
    "content",
    [
      { body: Buffer.from([0, 1, 255]), properties, ...ids },
      { body: "a value", bodyType: "value", applicationProperties: properties },
      { body: ["one", 2, true], bodyType: "sequence" },
      { body: { json: [1, 2] } },
    ],
    { partitionId: "0" },
  );
  const [data, value, sequence, json] = await read(context, "content", "0", 4);
  assert.deepEqual(data.properties, properties);
  assert.deepEqual([...data.body], [0, 1, 255]);
  assert.deepEqual({ messageId: data.messageId, correlationId: data.correlationId, contentType: data.contentType }, ids);
  assert.deepEqual([value.getRawAmqpMessage().bodyType, value.body, value.properties], ["value", "a value", properties]);
  assert.deepEqual([sequence.getRawAmqpMessage().bodyType, sequence.body], ["sequence", ["one", 2, true]]);
  assert.deepEqual(json.body, { json: [1, 2] });

  assert.deepEqual([data, value, sequence, json].map((event) => event.sequenceNumber), [0, 1, 2, 3]);
  assert.ok(Number(value.offset) > Number(data.offset));
  assert.ok(Math.abs(Date.now() - data.enqueuedTimeUtc.getTime()) < 300_000);

  await send(context, "content", [{ body: "with a key" }], { partitionKey: "home-42" });
  const readers = ["0", "1"].map((id) => new Reader(context, "content", id));
  const keyed = () => readers.flatMap((reader) => reader.events).find((event) => event.partitionKey);
  await until(keyed, 20, () => "no event with a key");
  assert.equal(keyed().partitionKey, "home-42");
  for (const reader of readers) await reader.close();
}

export async function last_enqueued_info(context) {
  await send(context, "metrics", numbered("metric", 10), { partitionId: "0" });
  const reader = new Reader(context, "metrics", "0", { trackLastEnqueuedEventProperties: true, maxBatchSize: 1 });
  await reader.take(1);
  assert.equal(reader.info.sequenceNumber, 9);
  assert.ok(reader.info.offset && reader.info.enqueuedOn && reader.info.retrievedOn, JSON.stringify(reader.info));
  await reader.close();
}

// ---- owners and limits -----------------------------------------------------------------------------------------

export async function epoch_eviction(context) {
  await send(context, "epochs", numbered("epoch", 1), { partitionId: "0" });
  const low = new Reader(context, "epochs", "0", { ownerLevel: 1 });
  await low.take(1);
  const high = new Reader(context, "epochs", "0", { ownerLevel: 2 });
  await high.take(1);
  assert.equal((await low.error()).code, "ReceiverDisconnectedError");
  const lower = new Reader(context, "epochs", "0", { ownerLevel: 1 }, consumer(context, "epochs", once));
  assert.equal((await lower.error()).code, "ReceiverDisconnectedError");
  const plain = new Reader(context, "epochs", "0", {}, consumer(context, "epochs", once));
  assert.match((await plain.error()).message, /non-epoch receiver is not allowed/);
  await send(context, "epochs", [{ body: "on" }], { partitionId: "0" });
  await high.take(2);
  for (const reader of [low, high, lower, plain]) await reader.close();
}

export async function sixth_reader(context) {
  await send(context, "readers", numbered("reader", 1), { partitionId: "0" });
  const five = Array.from({ length: 5 }, () => new Reader(context, "readers", "0"));
  for (const reader of five) await reader.take(1);
  const sixth = new Reader(context, "readers", "0", {}, consumer(context, "readers", once));
  const error = await sixth.error();
  assert.match(error.message, /Exceeded the maximum number of allowed receivers/);
  assert.equal(error.code, "QuotaExceededError");
  assert.equal(sixth.events.length, 0);
  await sixth.close();
  await five.pop().close();
  assert.equal((await read(context, "readers", "0", 1)).length, 1, "no reader is taken after one has left");
  for (const reader of five) await reader.close();
}

// ---- errors ----------------------------------------------------------------------------------------------------

export async function unknown_hub(context) {
  const client = producer(context, "no-such-hub", once);
  await refused(client.getEventHubProperties(), "MessagingEntityNotFoundError");
  await refused(client.sendBatch([{ body: "x" }]), "MessagingEntityNotFoundError");
  await client.close();
  const reader = new Reader(context, "no-such-hub", "0", {}, consumer(context, "no-such-hub", once));
  assert.equal((await reader.error()).code, "MessagingEntityNotFoundError");
  await reader.close();
}

export async function bad_key(context) {
  const client = new EventHubProducerClient(context.bad_key, "tokens", once);
  await refused(client.sendBatch([{ body: "x" }]), "UnauthorizedError");
  await client.close();
}

async function withToken(validSeconds) {
  say({ ask: "token", hub: "tokens", valid_seconds: validSeconds });
  return (await told()).connection_string;
}

export async function expired_token() {
  const good = new EventHubProducerClient(await withToken(600), "tokens", once);
  await good.sendBatch([{ body: "allowed" }]);
  await good.close();
  const stale = new EventHubProducerClient(await withToken(-60), "tokens", once);
  await refused(stale.sendBatch([{ body: "x" }]), "UnauthorizedError");
  await stale.close();
}

export async function token_expires(context) {
  await send(context, "tokens", [{ body: "first" }], { partitionId: "0" });
  const client = new EventHubConsumerClient("$Default", await withToken(4), "tokens", once);
  const reader = new Reader(context, "tokens", "0", {}, client);
  await reader.take(1);
  await reader.error();
  await reader.close();
}

export async function own_rules(context) {
  const sensors = { ...context, connection_string: context.rules.send };
  const apps = { ...context, connection_string: context.rules.listen };
  await send(sensors, "rules", [{ body: "sensed" }], { partitionId: "0" });
  assert.deepEqual(bodies(await read(apps, "rules", "0", 1)), ["sensed"]);
  const sender = producer(apps, "rules", once);
  await refused(sender.sendBatch([{ body: "x" }]), "UnauthorizedError");
  await sender.close();
  const reader = new Reader(sensors, "rules", "0", {}, consumer(sensors, "rules", once));
  assert.equal((await reader.error()).code, "UnauthorizedError");
  await reader.close();
  const elsewhere = producer(sensors, "single", once);
  await refused(elsewhere.sendBatch([{ body: "x" }]), "UnauthorizedError"); // the rule is for one hub
  await elsewhere.close();
}

export async function event_too_large(context) {
  const client = producer(context, "large", once);
  const batch = await client.createBatch();
  assert.equal(batch.tryAdd({ body: Buffer.alloc(1_100_000, "x") }), false);
  await refused(client.sendBatch([{ body: Buffer.alloc(1_100_000, "x") }]), "MessageTooLargeError");
  await client.sendBatch([{ body: "small" }]);
  await client.close();
  assert.deepEqual(bodies(await read(context, "large", "0", 1)), ["small"]);
}

export async function idempotent_producer(context) {
  const failures = [];
  const client = new EventHubBufferedProducerClient(context.connection_string, "idempotent", {
    enableIdempotentRetries: true,
    maxWaitTimeInMs: 50,
    retryOptions: { retryDelayInMs: 200, maxRetries: 10, timeoutInMs: 5_000 },
    onSendEventsErrorHandler: ({ error }) => failures.push(error),
  });
  const [first, second] = [numbered("first", 200), numbered("second", 100)];
  for (const event of first) await client.enqueueEvent(event, { partitionId: "0" });
  await client.flush();

  // Events are stored and the answer is lost: the SDK sends them again, and they are there once.
  const place = { hub: "idempotent", role: "sender" };
  await fault({ kind: "delay", delay_ms: 60_000, count: 1, ...place });
  for (const event of second) await client.enqueueEvent(event, { partitionId: "0" });
  const flushed = client.flush();
  const watcher = producer(context, "idempotent");
  while ((await watcher.getPartitionProperties("0")).lastEnqueuedSequenceNumber < 200) await sleep(50);
  await fault({ kind: "drop", count: 1, ...place });
  await flushed;
  await client.close();
  const { lastEnqueuedSequenceNumber } = await watcher.getPartitionProperties("0");
  await watcher.close();
  assert.deepEqual(failures, []);
  assert.deepEqual(bodies(await read(context, "idempotent", "0", 300)), bodies([...first, ...second]));
  assert.equal(lastEnqueuedSequenceNumber, 299, "events are there twice");
}

/** Has the hub do something wrong. */
async function fault(fault) {
  say({ ask: "fault", fault });
  await told();
}

// ---- transports ------------------------------------------------------------------------------------------------

/** Sends and receives over TLS; the certificate authority is trusted by NODE_EXTRA_CA_CERTS in the environment. */
async function securely(context, hub, options) {
  const secure = { ...context, connection_string: context.tls_connection_string };
  const client = producer(secure, hub, options);
  await client.sendBatch([{ body: "securely" }]);
  await client.close();
  const reader = new Reader(secure, hub, "0", {}, consumer(secure, hub, options));
  assert.deepEqual(bodies(await reader.take(1)), ["securely"]);
  await reader.close();
}

export async function tls(context) {
  await securely(context, "tls", {});
}

export async function websocket(context) {
  await securely(context, "websocket", { webSocketOptions: { webSocket: WebSocket } });
  return "over TLS, the only way in this SDK";
}

// ---- a restart -------------------------------------------------------------------------------------------------

export async function hub_restart(context) {
  const acknowledged = [];
  const restarts = [];
  const reader = new Reader(context, "restart", "0");
  const client = producer(context, "restart");
  for (let n = 0; n < 60; n++) {
    for (let attempt = 0; attempt < 5; attempt++) {
      try {
        await client.sendBatch([{ body: n }], { partitionId: "0" });
        acknowledged.push(n);
        break;
      } catch (error) {
        await sleep(500); // not acknowledged: send it again, as a user would
      }
    }
    if (n === 20 || n === 40) {
      say({ ask: "restart", how: n === 20 ? "term" : "kill" });
      restarts.push(told());
    }
    await sleep(20);
  }
  await Promise.all(restarts);
  const missing = () => acknowledged.filter((n) => !reader.events.some((event) => event.body === n));
  await until(() => missing().length === 0, 45, () => `missing ${missing()}, errors ${reader.errors}`);
  assert.equal(acknowledged.length, 60);
  await client.close();
  await reader.close();
}
