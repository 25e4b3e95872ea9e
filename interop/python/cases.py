"""The cases, each a small program of its own. A case returns a remark for the table, or nothing."""

import asyncio
import datetime
import uuid

from azure.eventhub import EventData, TransportType
from azure.eventhub.aio import EventHubConsumerClient, EventHubProducerClient
from azure.eventhub.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType
from azure.eventhub.exceptions import AuthenticationError, EventHubError

from client import Reader, consumer, producer, read, send, told

say = None


class NotOffered(Exception):
    """The SDK has no such thing."""


def texts(events):
    return [event.body_as_str() for event in events]


def numbered(word, count):
    return [EventData(f"{word}-{n}") for n in range(count)]


async def refused(awaitable, *words):
    """Awaits something that must fail with an error that contains one of the words; gives it."""
    try:
        await asyncio.wait_for(awaitable, 40)
    except asyncio.TimeoutError:
        raise AssertionError("no error within 40 s") from None
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        assert any(word in text for word in words), f"another error than expected: {text}"
        return error
    raise AssertionError("it was not refused")


# ---- properties ----------------------------------------------------------------------------------------------

async def hub_properties(context):
    async with producer(context, "properties") as client:
        found = await client.get_eventhub_properties()
        assert found["eventhub_name"] == "properties", found
        assert found["partition_ids"] == ["0", "1", "2", "3"], found
        age = datetime.datetime.now(datetime.timezone.utc) - found["created_at"]
        assert abs(age) < datetime.timedelta(days=1), found
        assert await client.get_partition_ids() == found["partition_ids"]


async def partition_properties(context):
    async with producer(context, "properties") as client:
        empty = await client.get_partition_properties("1")
        assert empty["is_empty"] and empty["last_enqueued_sequence_number"] == -1, empty
        await send(context, "properties", numbered("one", 3), partition="2")
        found = await client.get_partition_properties("2")
        assert found["eventhub_name"] == "properties" and found["id"] == "2", found
        assert not found["is_empty"], found
        assert (found["beginning_sequence_number"], found["last_enqueued_sequence_number"]) == (0, 2), found
        last = (await read(context, "properties", "2", 3))[-1]
        assert found["last_enqueued_offset"] == last.offset, found
        assert found["last_enqueued_time_utc"] == last.enqueued_time, found


# ---- sending -------------------------------------------------------------------------------------------------

async def send_single(context):
    async with producer(context, "single") as client:
        for n in range(3):
            await client.send_event(EventData(f"single-{n}"), partition_id="0")
    assert texts(await read(context, "single", "0", 3)) == ["single-0", "single-1", "single-2"]


async def send_batch(context):
    async with producer(context, "batches") as client:
        batch = await client.create_batch(partition_id="0")
        for n in range(500):
            batch.add(EventData(f"batch-{n}"))
        await client.send_batch(batch)

        full = await client.create_batch(partition_id="1")
        count = 0
        try:
            while True:
                full.add(EventData(b"x" * 10_000))
                count += 1
        except ValueError:
            pass  # it is full
        assert 90 <= count <= 105, f"{count} events of 10 kB in a batch of 1 MiB"
        await client.send_batch(full)
    assert texts(await read(context, "batches", "0", 500)) == [f"batch-{n}" for n in range(500)]
    assert len(await read(context, "batches", "1", count)) == count


async def send_by_key(context):
    async with producer(context, "keys") as client:
        for key in context["keys"]:
            batch = await client.create_batch(partition_key=key)
            batch.add(EventData(f"key {key}"))
            await client.send_batch(batch)

    async def check(partition, keys):
        found = {event.body_as_str(): event.partition_key.decode() for event in await read(context, "keys", partition, len(keys))}
        assert found == {f"key {key}": key for key in keys}, (partition, found)

    partitions = set(context["keys"].values())
    await asyncio.gather(*(check(one, [key for key, partition in context["keys"].items() if partition == one]) for one in partitions))


async def send_to_partition(context):
    async with producer(context, "partitions") as client:
        for partition in "0123":
            await client.send_event(EventData(f"to {partition}"), partition_id=partition)
    found = await asyncio.gather(*(read(context, "partitions", partition, 1) for partition in "0123"))
    assert [texts(events) for events in found] == [[f"to {partition}"] for partition in "0123"], found


async def buffered_producer(context):
    done, failures = [], []

    async def on_success(events, partition):
        done.extend((event.body_as_str(), partition) for event in events)

    async def on_error(events, partition, error):
        failures.append(error)

    client = producer(context, "buffered", buffered_mode=True, on_success=on_success, on_error=on_error, max_wait_time=1)
    async with client:
        for key in context["keys"]:
            await client.send_event(EventData(f"key {key}"), partition_key=key)
        await client.flush()
    assert not failures, failures
    # The client chose the partition by its own hash, and there the events are.
    async def check(text, partition):
        assert text in texts(await read_all(context, "buffered", partition)), (text, partition)

    await asyncio.gather(*(check(text, partition) for text, partition in done))
    if dict(done) != {f"key {key}": partition for key, partition in context["keys"].items()}:
        return "works; but this SDK's own hash of some keys differs from the service's, whoever serves: it takes the remainder as Python does"


async def read_all(context, hub, partition):
    """Reads all that a partition has."""
    async with consumer(context, hub) as client:
        properties = await client.get_partition_properties(partition)
    return await read(context, hub, partition, properties["last_enqueued_sequence_number"] + 1)


# ---- receiving -----------------------------------------------------------------------------------------------

async def positions(context):
    """Five events on a partition, 20 ms apart, sent once; gives them as received."""
    if not hasattr(positions, "events"):
        async with producer(context, "positions") as client:
            for n in range(5):
                await client.send_event(EventData(f"position-{n}"), partition_id="0")
                await asyncio.sleep(0.02)
        positions.events = await read(context, "positions", "0", 5)
    return positions.events


async def from_position(context, start, inclusive, expected):
    found = texts(await read(context, "positions", "0", len(expected), start=start, starting_position_inclusive=inclusive))
    assert found == expected, f"from {start!r}, inclusive {inclusive}: {found}"


async def after_and_from(context, third):
    """Reads after the third event, and from it."""
    await asyncio.gather(from_position(context, third, False, ["position-3", "position-4"]),
                         from_position(context, third, True, ["position-2", "position-3", "position-4"]))


async def receive_earliest(context):
    assert texts(await positions(context)) == [f"position-{n}" for n in range(5)]
    await from_position(context, "-1", False, [f"position-{n}" for n in range(5)])


async def receive_latest(context):
    await positions(context)
    await send(context, "positions", [EventData("before")], partition="1")
    async with Reader(context, "positions", "1", "@latest") as reader:
        # The reader is attached some time after it was started: send until one comes through.
        for n in range(100):
            await send(context, "positions", [EventData(f"after-{n}")], partition="1")
            if reader.events:
                break
            await asyncio.sleep(0.1)
        found = texts(await reader.take(1))
        assert all(text.startswith("after") for text in found), found


async def receive_offset(context):
    third = (await positions(context))[2]
    await after_and_from(context, third.offset)


async def receive_sequence(context):
    third = (await positions(context))[2]
    await after_and_from(context, third.sequence_number)


async def receive_time(context):
    third = (await positions(context))[2]
    await after_and_from(context, third.enqueued_time)


async def content_round_trip(context):
    properties = {
        "text": "na\u00efve \u2603", "yes": True, "int": 42, "negative": -7, "double": 0.25, "bytes": b"\x00\xff",
        "id": uuid.UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8"),
    }
    event = EventData(b"\x00\x01binary")
    event.properties = properties
    event.message_id, event.correlation_id, event.content_type = "m-1", "c-1", "application/octet-stream"
    value = AmqpAnnotatedMessage(value_body={"a": 1, "b": [True, "x"]})
    sequence = AmqpAnnotatedMessage(sequence_body=[["one", 2], ["three"]])
    await send(context, "content", [event, value, sequence], partition="0")
    first, second, third = await read(context, "content", "0", 3)

    found = {key.decode(): one for key, one in first.properties.items()}
    found["text"] = found["text"].decode()
    assert found == properties, found
    assert b"".join(first.body) == b"\x00\x01binary"
    assert (first.message_id, first.correlation_id, first.content_type) == ("m-1", "c-1", "application/octet-stream")
    assert second.body_type == AmqpMessageBodyType.VALUE and second.body == {b"a": 1, b"b": [True, b"x"]}, second.body
    assert third.body_type == AmqpMessageBodyType.SEQUENCE and list(third.body) == [[b"one", 2], [b"three"]], third.body

    assert [event.sequence_number for event in (first, second, third)] == [0, 1, 2]
    offsets = [int(event.offset) for event in (first, second, third)]
    assert offsets == sorted(set(offsets)), offsets
    now = datetime.datetime.now(datetime.timezone.utc)
    assert abs(now - first.enqueued_time) < datetime.timedelta(minutes=5)

    await send(context, "content", [EventData("with a key")], key="home-42")
    readers = [Reader(context, "content", partition) for partition in "01"]
    for _ in range(200):
        keyed = [event for reader in readers for event in reader.events if event.partition_key]
        if keyed:
            break
        await asyncio.sleep(0.05)
    assert keyed and keyed[0].partition_key == b"home-42", keyed
    for reader in readers:
        await reader.close()


async def last_enqueued_info(context):
    await send(context, "metrics", numbered("metric", 10), partition="0")
    seen = []
    async with consumer(context, "metrics") as client:
        async def on_event(partition, event):
            seen.append((event.sequence_number, partition.last_enqueued_event_properties))

        task = asyncio.create_task(client.receive(on_event, partition_id="0", starting_position="-1",
                                                  track_last_enqueued_event_properties=True))
        for _ in range(200):
            if len(seen) >= 10:
                break
            await asyncio.sleep(0.05)
        task.cancel()
    assert len(seen) == 10, seen
    info = seen[0][1]
    assert info["sequence_number"] == 9 and info["offset"] and info["enqueued_time"] and info["retrieval_time"], info


# ---- owners and limits ---------------------------------------------------------------------------------------

async def epoch_eviction(context):
    await send(context, "epochs", numbered("epoch", 1), partition="0")
    async with Reader(context, "epochs", "0", owner_level=1) as low:
        await low.take(1)
        async with Reader(context, "epochs", "0", owner_level=2) as high:
            await high.take(1)
            error = await low.error()
            assert "higher epoch" in str(error), error
            async with Reader(context, "epochs", "0", owner_level=1, client=quick(context, "epochs")) as lower:
                assert "higher epoch" in str(await lower.error())
            async with Reader(context, "epochs", "0", client=quick(context, "epochs")) as plain:
                assert "non-epoch receiver is not allowed" in str(await plain.error())
            await send(context, "epochs", [EventData("on")], partition="0")
            await high.take(2)


async def sixth_reader(context):
    await send(context, "readers", numbered("reader", 1), partition="0")
    five = [Reader(context, "readers", "0") for _ in range(5)]
    for reader in five:
        await reader.take(1)
    async with Reader(context, "readers", "0", client=quick(context, "readers")) as sixth:
        error = await sixth.error()
        assert "Exceeded the maximum number of allowed receivers" in str(error), error
        assert not sixth.events
    await five.pop().close()
    assert len(await read(context, "readers", "0", 1)) == 1, "no reader is taken after one has left"
    for reader in five:
        await reader.close()


def quick(context, hub):
    """A consumer that reports an error instead of trying again for long."""
    return consumer(context, hub, retry_total=0)


# ---- errors --------------------------------------------------------------------------------------------------

async def unknown_hub(context):
    async with producer(context, "no-such-hub", retry_total=0) as client:
        # Its token is refused with 404 and an error-condition, as by the service. Where there is one, the SDK tells no more.
        for call in (client.get_eventhub_properties(), client.send_event(EventData("x"))):
            error = await refused(call, "CBS Token authentication failed")
            assert isinstance(error, AuthenticationError), repr(error)
    async with Reader(context, "no-such-hub", "0", client=quick(context, "no-such-hub")) as reader:
        assert isinstance(await reader.error(), AuthenticationError), reader.errors


async def bad_key(context):
    client = EventHubProducerClient.from_connection_string(context["bad_key"], eventhub_name="tokens", retry_total=0)
    async with client:
        error = await refused(client.send_event(EventData("x")), "Auth", "auth")
        assert isinstance(error, AuthenticationError), repr(error)


async def with_token(context, valid_seconds):
    say(ask="token", hub="tokens", valid_seconds=valid_seconds)
    return (await told())["connection_string"]


async def expired_token(context):
    good = EventHubProducerClient.from_connection_string(await with_token(context, 600), eventhub_name="tokens")
    async with good:
        await good.send_event(EventData("allowed"))
    stale = EventHubProducerClient.from_connection_string(await with_token(context, -60), eventhub_name="tokens", retry_total=0)
    async with stale:
        error = await refused(stale.send_event(EventData("x")), "Auth", "auth", "expired")
        assert isinstance(error, EventHubError), repr(error)


async def token_expires(context):
    await send(context, "tokens", [EventData("first")], partition="0")
    short = EventHubConsumerClient.from_connection_string(await with_token(context, 4), "$Default", eventhub_name="tokens", retry_total=0)
    async with Reader(context, "tokens", "0", client=short) as reader:
        await reader.take(1)
        await reader.error(30)


async def own_rules(context):
    sensors = {**context, "connection_string": context["rules"]["send"]}
    apps = {**context, "connection_string": context["rules"]["listen"]}
    await send(sensors, "rules", [EventData("sensed")], partition="0")
    assert texts(await read(apps, "rules", "0", 1)) == ["sensed"]
    async with producer(apps, "rules", retry_total=0) as client:
        await refused(client.send_event(EventData("x")), "Unauthorized access. 'Send' claim")
    async with Reader(sensors, "rules", "0", client=quick(sensors, "rules")) as reader:
        assert "Unauthorized access. 'Listen' claim" in str(await reader.error()), reader.errors
    async with producer(sensors, "single", retry_total=0) as client:
        await refused(client.send_event(EventData("x")), "AuthenticationError", "Unauthorized access")  # the rule is for one hub


async def event_too_large(context):
    async with producer(context, "large", retry_total=0) as client:
        batch = await client.create_batch()
        try:
            batch.add(EventData(b"x" * 1_100_000))
            raise AssertionError("the batch took it")
        except ValueError:
            pass
        await refused(client.send_event(EventData(b"x" * 1_100_000)), "exceed", "size", "large")
        await client.send_event(EventData("small"))
    assert texts(await read(context, "large", "0", 1)) == ["small"]


async def idempotent_producer(context):
    raise NotOffered("")


# ---- transports ----------------------------------------------------------------------------------------------

async def tls(context):
    # The SDK takes no port from a connection string without the emulator's flag: it is given as an endpoint of its own.
    options = {"transport_type": TransportType.Amqp, "connection_verify": context["tls_ca_file"],
               "custom_endpoint_address": f"sb://{context['tls_authority']}"}
    secure = {**context, "connection_string": context["tls_connection_string"]}
    async with producer(secure, "tls", **options) as client:
        await client.send_event(EventData("over tls"))
    async with Reader(secure, "tls", "0", client=consumer(secure, "tls", **options)) as reader:
        assert texts(await reader.take(1)) == ["over tls"]


async def websocket(context):
    # Over WebSockets the SDK takes the port from a custom endpoint only; the emulator's flag makes it ws instead of wss.
    authority = context["amqp_url"].removeprefix("amqp://")
    options = {"transport_type": TransportType.AmqpOverWebsocket, "custom_endpoint_address": f"sb://{authority}"}
    async with producer(context, "websocket", **options) as client:
        await client.send_event(EventData("over a websocket"))
    async with Reader(context, "websocket", "0", client=consumer(context, "websocket", **options)) as reader:
        assert texts(await reader.take(1)) == ["over a websocket"]


# ---- a restart -----------------------------------------------------------------------------------------------

async def hub_restart(context):
    acknowledged, asked = [], []

    async def feed():
        async with producer(context, "restart") as client:
            for n in range(60):
                for _ in range(5):
                    try:
                        await client.send_event(EventData(str(n)), partition_id="0")
                        acknowledged.append(str(n))
                        break
                    except EventHubError:
                        await asyncio.sleep(0.5)  # not acknowledged: send it again, as a user would
                if n in (20, 40):
                    say(ask="restart", how="term" if n == 20 else "kill")
                    asked.append(asyncio.create_task(told()))
                await asyncio.sleep(0.02)

    async with Reader(context, "restart", "0") as reader:
        await feed()
        for restart in asked:
            await restart
        await reader.until(lambda r: set(acknowledged) <= set(texts(r.events)), 45)
    assert len(acknowledged) == 60, f"{len(acknowledged)} of 60 were acknowledged"
