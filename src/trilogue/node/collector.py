"""When Python's garbage collector may stop the loop: rarely, and then briefly.

Left alone, a full collection comes whenever enough objects are new, and looks at all there are:
with ten thousand partitions it took 50 ms, several times a minute. So the full ones are ours to
start: once a minute, over what is new since the last one, and what survives is never looked at
again (`gc.freeze`). Now and then everything is, because a topic that was deleted may be in there.

Collections of young objects go on by themselves and must be small ones: two thousand objects
take 0.5 ms. Those of middle age are all that survived so many young collections; with twenty of
five thousand each they took 15 to 29 ms, every other second under load.
"""

from __future__ import annotations

import asyncio
import gc

EVERY_S = 60.0
WHOLE_EVERY = 30  # times
YOUNG, MIDDLE, NEVER = 2_000, 4, 1 << 30


def take_over() -> None:
    """From here on a full collection happens only when `collect` is called."""
    gc.freeze()  # what is there now stays: never look at it again
    gc.set_threshold(YOUNG, MIDDLE, NEVER)
    gc.enable()


def collect(*, whole: bool) -> None:
    """Find garbage among what is new, or among everything, and set aside what is in use."""
    if whole:
        gc.unfreeze()
    gc.collect()
    gc.freeze()


async def collect_for_ever(every_s: float = EVERY_S) -> None:
    """Collect every now and then."""
    count = 0
    while True:
        await asyncio.sleep(every_s)
        count += 1
        collect(whole=count % WHOLE_EVERY == 0)
