"""Keeps pauses of Python's garbage collector rare and short.

By default a full collection runs when enough objects are new, and visits all objects: with ten
thousand partitions that took 50 ms, several times a minute. Here a full collection runs once a
minute over the objects made since the last one, and survivors are not visited again (`gc.freeze`).
Every 30th visits all objects, because those of deleted topics may be among the frozen ones; so does
one when `CLOSED_MAX` closed connections are still in memory, which their owners should have freed.

After many connections were closed, what the heap has free goes back to the system: their memory
lies between that of others, and the C library releases by itself what is at the end of a heap.

Young collections stay automatic, with a small threshold: two thousand objects take 0.5 ms. A middle
collection visits all survivors of several young ones; with twenty of five thousand objects each it
took 15 to 29 ms, every other second under load.
"""

from __future__ import annotations

import asyncio
import gc

from trilogue.gateway.memory_budget import ClosedConnections, release_heap

EVERY_S = 60.0
WHOLE_EVERY = 30  # collections
CLOSED_MAX = 500  # connections in memory
CLOSED_MANY = 500  # connections since the last collection: their memory is worth 0.1 s
YOUNG, MIDDLE, NEVER = 2_000, 4, 1 << 30


def configure() -> None:
    """Freeze the objects of the start, and leave full collections to `collect`."""
    gc.freeze()  # these objects live as long as the process
    gc.set_threshold(YOUNG, MIDDLE, NEVER)
    gc.enable()


def collect(*, whole: bool) -> None:
    """Collect new objects, or all if `whole`, and freeze the survivors."""
    if whole:
        gc.unfreeze()
    gc.collect()
    gc.freeze()


async def collect_periodically(closed: ClosedConnections, every_s: float = EVERY_S) -> None:
    """Run a full collection every `every_s` seconds, for ever."""
    count = 0
    while True:
        await asyncio.sleep(every_s)
        count += 1
        collect(whole=count % WHOLE_EVERY == 0 or closed.alive >= CLOSED_MAX)
        if closed.count_new() >= CLOSED_MANY:
            await asyncio.to_thread(release_heap)
