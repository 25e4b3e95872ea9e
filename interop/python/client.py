"""The few helpers that all roles share."""

import asyncio
import json
import sys

from azure.eventhub.aio import EventHubConsumerClient, EventHubProducerClient

EARLIEST = "-1"


def producer(context, hub, **options):
    return EventHubProducerClient.from_connection_string(context["connection_string"], eventhub_name=hub, **options)


def consumer(context, hub, group="$Default", **options):
    return EventHubConsumerClient.from_connection_string(context["connection_string"], group, eventhub_name=hub, **options)


async def send(context, hub, events, partition=None, key=None):
    """Sends events as one batch."""
    async with producer(context, hub) as client:
        batch = await client.create_batch(partition_id=partition, partition_key=key)
        for event in events:
            batch.add(event)
        await client.send_batch(batch)


class Reader:
    """Reads one partition in the background. `events` are those so far, `errors` what went wrong."""

    def __init__(self, context, hub, partition, start=EARLIEST, client=None, **options):
        self.events, self.errors, self.opened = [], [], asyncio.Event()
        self._client = client or consumer(context, hub)
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._client.receive(
            self._on_event, partition_id=partition, starting_position=start, on_error=self._on_error,
            on_partition_initialize=self._on_open, **options))
        self._task.add_done_callback(lambda _: self._changed.set())

    async def _on_event(self, partition, event):
        if event is not None:
            self.events.append(event)
        self._changed.set()

    async def _on_error(self, partition, error):
        self.errors.append(error)
        self._changed.set()

    async def _on_open(self, partition):
        self.opened.set()

    async def until(self, condition, seconds=20):
        """Waits until the condition on this reader holds."""
        async def wait():
            while not condition(self):
                if self._task.done():
                    await self._task
                    raise AssertionError("the reader ended")
                self._changed.clear()
                await self._changed.wait()
        try:
            await asyncio.wait_for(wait(), seconds)
        except asyncio.TimeoutError:
            raise AssertionError(f"not within {seconds} s; {len(self.events)} events, errors: {self.errors}") from None

    async def take(self, count, seconds=20):
        """Waits for this many events; gives them."""
        await self.until(lambda reader: len(reader.events) >= count, seconds)
        return self.events

    async def error(self, seconds=30):
        """Waits for an error; gives it."""
        await self.until(lambda reader: reader.errors, seconds)
        return self.errors[0]

    async def close(self):
        self._task.cancel()  # else it would sleep until the next round of load balancing
        await asyncio.gather(self._task, return_exceptions=True)
        await self._client.close()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.close()


async def read(context, hub, partition, count, start=EARLIEST, **options):
    """Reads this many events."""
    async with Reader(context, hub, partition, start, **options) as reader:
        return await reader.take(count)


async def told():
    """The harness's next line; None when it has closed the pipe."""
    line = await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    return json.loads(line) if line else None
