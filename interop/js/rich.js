// Writes one rich event per kind of body, and reads those of all SDKs.

import { read as readEvents, say, send } from "./client.js";
import rhea from "rhea";

const { types } = rhea;
const make = {
  int: types.wrap_int,
  long: types.wrap_long,
  float: types.wrap_float,
  double: types.wrap_double,
  timestamp: types.wrap_timestamp,
  uuid: (text) => types.wrap_uuid(Buffer.from(text.replaceAll("-", ""), "hex")),
  binary: (hex) => Buffer.from(hex, "hex"),
};

export async function write(context) {
  const applicationProperties = {};
  for (const [name, [kind, value]] of Object.entries(context.properties)) {
    applicationProperties[name] = (make[kind] ?? ((same) => same))(value);
  }
  const event = (bodyType, body) => ({
    body,
    bodyType,
    applicationProperties,
    properties: { messageId: `${context.writer}-${bodyType}`, correlationId: "correlated", contentType: "application/json" },
  });
  const events = [
    event("data", Buffer.from(context.bodies.data, "hex")),
    event("value", context.bodies.value),
    event("sequence", context.bodies.sequence),
  ];
  await send(context, "rich", events, { partitionId: context.partition });
  say({ bodies: ["data", "value", "sequence"] });
}

export async function read(context) {
  const events = {};
  for (const [partition, count] of Object.entries(context.expected)) {
    const found = await readEvents(context, "rich", partition, count, { skipParsingBodyAsJson: true });
    events[partition] = found.map(plain);
  }
  say({ events });
}

function plain(event) {
  const kind = event.getRawAmqpMessage().bodyType;
  const properties = {};
  for (const [name, value] of Object.entries(event.properties ?? {})) properties[name] = canonical(name, value);
  return {
    kind,
    message_id: event.messageId,
    correlation_id: event.correlationId,
    content_type: event.contentType,
    properties,
    body: kind === "data" ? Buffer.from(event.body).toString("hex") : event.body,
  };
}

function canonical(name, value) {
  if (value instanceof Date) return value.getTime();
  // Of binaries the SDK makes objects with a field per byte.
  const bytes = value !== null && typeof value === "object" ? Buffer.from(Object.values(value)).toString("hex") : undefined;
  return name === "id" && bytes ? uuid(bytes) : (bytes ?? value);
}

const uuid = (hex) => hex.replace(/(.{8})(.{4})(.{4})(.{4})(.{12})/, "$1-$2-$3-$4-$5");
