"""Reads a hub from the beginning with the official SDK and says how many events per second that were, from the first batch on:
drain.py CONNECTION_STRING HUB PARTITIONS EVENTS BATCH PREFETCH"""

import asyncio
import sys
import time

from azure.eventhub.aio import EventHubConsumerClient


async def main():
    connection, hub = sys.argv[1:3]
    partitions, events, batch, prefetch = map(int, sys.argv[3:7])
    count, first, before = 0, None, 0
    done = asyncio.Event()

    async def on_batch(_, received):
        nonlocal count, first, before
        count += len(received)
        if first is None:
            first, before = time.perf_counter(), count
        if count >= events:
            done.set()

    client = EventHubConsumerClient.from_connection_string(connection, "$Default", eventhub_name=hub)
    readers = [
        asyncio.create_task(
            client.receive_batch(
                on_event_batch=on_batch,
                partition_id=str(partition),
                starting_position="-1",
                max_batch_size=batch,
                prefetch=prefetch,
            )
        )
        for partition in range(partitions)
    ]
    await done.wait()
    print(round((count - before) / (time.perf_counter() - first)), flush=True)
    for reader in readers:
        reader.cancel()
    await client.close()


asyncio.run(main())
