"""Writes one rich event per kind of body, and reads those of all SDKs."""

import datetime
import uuid

from azure.eventhub.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType, AmqpMessageProperties

from client import read as read_events, send

say = None

MAKE = {
    "timestamp": lambda ms: datetime.datetime.fromtimestamp(ms / 1000, datetime.timezone.utc),
    "uuid": uuid.UUID,
    "binary": bytes.fromhex,
}


async def write(context):
    # The SDK writes whole numbers of 32 bits only.
    without = [name for name, (kind, value) in context["properties"].items() if kind == "long" and value >= 2**31]
    properties = {name: MAKE.get(kind, lambda value: value)(value) for name, (kind, value) in context["properties"].items()
                  if name not in without}
    bodies = {
        "data": {"data_body": bytes.fromhex(context["bodies"]["data"])},
        "value": {"value_body": context["bodies"]["value"]},
        "sequence": {"sequence_body": [context["bodies"]["sequence"]]},
    }
    events = [
        AmqpAnnotatedMessage(**body, application_properties=properties, properties=AmqpMessageProperties(
            message_id=f"{context['writer']}-{kind}", correlation_id="correlated", content_type="application/json"))
        for kind, body in bodies.items()
    ]
    await send(context, "rich", events, partition=context["partition"])
    say(bodies=list(bodies), without=without)


async def read(context):
    events = {}
    for partition, count in context["expected"].items():
        events[partition] = [plain(event) for event in await read_events(context, "rich", partition, count)]
    say(events=events)


def plain(event):
    kinds = {AmqpMessageBodyType.DATA: "data", AmqpMessageBodyType.VALUE: "value", AmqpMessageBodyType.SEQUENCE: "sequence"}
    kind = kinds[event.body_type]
    return {
        "kind": kind,
        "message_id": event.message_id,
        "correlation_id": event.correlation_id,
        "content_type": event.content_type,
        "properties": {text(name): canonical(name, value) for name, value in event.properties.items()},
        "body": b"".join(event.body).hex() if kind == "data" else texts(event.body) if kind == "value" else [texts(one) for part in event.body for one in part],
    }


def canonical(name, value):
    if text(name) == "bytes":
        return value.hex()
    if isinstance(value, datetime.datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, uuid.UUID):
        return str(value)
    if text(name) == "when" and isinstance(value, int):
        return value
    return texts(value)


def texts(value):
    """The SDK gives strings as bytes."""
    if isinstance(value, list):
        return [texts(one) for one in value]
    return text(value)


def text(value):
    return value.decode() if isinstance(value, bytes) else value
