"""Checks at the start of a node of a cluster that its object storage takes and returns objects.

A store that refuses for good (no bucket, no right, no If-None-Match) ends the start before anything
is begun in PostgreSQL: with `ack=shared` the node would acknowledge what it could never flush. One
that does not answer is no reason: it may be away for a while, and only flushes wait for it.
"""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import suppress
from typing import Final

from trilogue.log.errors import ObjectDenied, ObjectExists, ObjectMissing, StorageUnavailable
from trilogue.log.objects.objects import ObjectStore
from trilogue.log.objects.obstore_store import open_store
from trilogue.node.errors import StartError
from trilogue.node.settings.objects import reach_of
from trilogue.node.settings.table import Settings

log = logging.getLogger(__name__)

PROBE: Final = "probe"
CONTENT: Final = b"a probe of Trilogue\n"
ANSWER_S: Final = 1.0


async def check_store(settings: Settings) -> None:
    """Raise StartError if the store of `objects.url` refuses what a node needs."""
    url = settings.text("objects.url")
    store = open_store(reach_of(settings, b"").options, request_s=ANSWER_S)
    try:
        await asyncio.to_thread(probe_store, store)
    except (ObjectDenied, ObjectMissing) as error:
        origin = settings.origin("objects.url")
        raise StartError(f"objects.url ({origin}): {url} cannot be used: {error}") from None
    except StorageUnavailable as error:
        log.warning("objects.not_reached", extra={"reason": str(error)})


def probe_store(store: ObjectStore) -> None:
    """Put an object twice, read it and delete it; its name is of this call only."""
    key = f"{PROBE}-{os.urandom(8).hex()}"
    store.put(key, memoryview(CONTENT))
    try:
        store.put(key, memoryview(CONTENT))
    except ObjectExists:
        store.read(key, 0, 1)
    else:
        raise ObjectDenied("the store overwrites objects in spite of If-None-Match")
    finally:
        with suppress(StorageUnavailable):
            store.delete(key)
