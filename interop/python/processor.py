"""The SDK's own event processor with its blob checkpoint store, and what feeds it."""

import asyncio

from azure.eventhub import EventData
from azure.eventhub.aio import EventHubConsumerClient
from azure.eventhub.extensions.checkpointstoreblobaio import BlobCheckpointStore

from client import producer, told

say = None


async def processor(context):
    blob = context["blob"]
    store = BlobCheckpointStore.from_connection_string(blob["connection_string"], blob["container"])
    client = EventHubConsumerClient.from_connection_string(
        context["connection_string"], "$Default", eventhub_name="processors", checkpoint_store=store,
        load_balancing_interval=context["interval_ms"] / 1000, partition_ownership_expiration_interval=context["expiry_ms"] / 1000)

    async def on_event(partition, event):
        number = int(event.body_as_str())
        say(event=[partition.partition_id, number])
        if number % 10 == 0:
            await partition.update_checkpoint(event)

    async with client:
        task = asyncio.create_task(client.receive(on_event, starting_position="-1"))
        await told()  # until the harness closes the pipe
        task.cancel()


async def feeder(context):
    stop = asyncio.create_task(told())
    number = 0
    async with producer(context, "processors") as client:
        while not stop.done():
            for partition in range(context["hubs"]["processors"]):
                await client.send_event(EventData(str(number)), partition_id=str(partition))
                say(sent=[str(partition), number])
            number += 1
            await asyncio.sleep(0.2)
