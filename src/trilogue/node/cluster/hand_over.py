"""Hands slots of this node over to other nodes of the cluster, in an end that a start may follow.

So the slots of a dead node are given away (slot_recovery.py), and those of a living one where it
could not do it while it serves (slot_release.py).

```
 flush while serving ──► listeners close, flush the rest ──► new owners in meta ──► start again
   SlotWatch                clients wait from here              one transaction,      ... to here
                                                                fenced by this node
```

The transaction comes after everything that writes is closed, and only if the journal is in
segments: what the next owner needs is in object storage and in meta then. If it is not written, the
node starts again as the owner. The next owner adopts the slots when it follows the change
(adoption.py). Until then it refuses their clients, since it has nothing of them (`Ownership.hold`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Protocol

from msgspec.structs import replace

from trilogue.log.errors import LogError
from trilogue.meta.errors import MetaError
from trilogue.meta.operations import GiveSlots
from trilogue.node.storage import NodePlace, Storage

if TYPE_CHECKING:
    from trilogue.node.settings.table import Settings

log = logging.getLogger(__name__)

GIVE_S: Final = 10.0  # for the transaction: PostgreSQL may be away


class EndingNode(Protocol):
    """A node after all that writes is closed."""

    storage: Storage
    is_flushed: bool


class HandOver:
    """Whether a node is to start again, and the slots that it gives away before."""

    def __init__(self) -> None:
        self.wanted = asyncio.Event()  # the node is to end, and to start again
        self.owners: dict[int, int] = {}  # of the slots that it gives away
        self.is_done = False  # they are given away

    @property
    def skips_flush(self) -> bool:
        """Whether the start that follows reads the journal: no other node needs it."""
        return self.wanted.is_set() and not self.owners

    def request(self, owners: Mapping[int, int]) -> None:
        """Let the node start again, without these slots."""
        self.owners = dict(owners)
        self.wanted.set()

    async def write(self, node: EndingNode) -> None:
        """Record the owners, after all that writes is closed."""
        storage = node.storage
        if not self.owners:
            return
        if not node.is_flushed:
            log.warning("slots.kept", extra={"reason": "the journal is not in segments"})
            return
        try:
            async with asyncio.timeout(GIVE_S):
                await storage.meta.write([GiveSlots(self.owners)], (), storage.fence)
        except (
            LogError,
            MetaError,
            OSError,
            TimeoutError,
        ) as error:
            # whatever became of it: the next start reads the owners
            log.warning("slots.kept", extra={"reason": repr(error)})
        else:
            self.is_done = True
            if storage.shared is not None and not self.wanted.is_set():
                storage.shared.end_recovery()
            log.info("slots.given", extra={"slots": self.owners})


def place_again(place: NodePlace, storage: Storage) -> NodePlace:
    """Return the place of the next start of a node, which keeps its lease."""
    cluster = place.cluster
    assert cluster is not None
    assert cluster.shared is not None
    assert storage.shared is not None
    shared = replace(cluster.shared, after_epoch=storage.shared.epoch, after_renewals=None)
    return replace(place, cluster=replace(cluster, shared=shared))


def settings_again(settings: Settings, addresses: Mapping[str, str]) -> Settings:
    """Return the settings of the next start of a node: clients find it where it was."""
    bound = {f"listen.{name}": address for name, address in addresses.items()}
    return settings.replaced(dict(bound), "the former start")
