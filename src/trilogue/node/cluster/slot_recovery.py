"""Gives the slots of a dead node to living ones: a job of a helper process.

```
 begin the dead node's epoch ──► read its rows ──► flush them to segments ──► GiveSlots ──► end
   journal, then meta: fenced      a start of the node, without listeners     one transaction,
                                                                              fenced by that epoch
```

The job is a start and an end of the dead node, so another process may be killed here at every step:
the next one begins the next epoch and finds what is left. It serves no client. Of several processes
that try at once one begins the epoch; the others are `Fenced` and have done nothing.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import shutil
import time
from pathlib import Path
from typing import Final

import msgspec

from trilogue.meta.errors import Fenced
from trilogue.meta.leases import RECOVERY_HOME
from trilogue.node.background.thread_helper import ThreadHelper
from trilogue.node.cluster.folder import make_folder
from trilogue.node.errors import StartError
from trilogue.node.logs import start_logging
from trilogue.node.settings.table import ALL_LISTENERS, Settings
from trilogue.node.storage import NodePlace
from trilogue.node.supervisor.slot_plans import spread_over

log = logging.getLogger(__name__)

FLUSH_LIMIT_S: Final = (
    600.0  # object storage may be slow; while it is away the job fails and is repeated
)
FOLDER: Final = "recovery"  # in the directory of the node that does it
JOURNAL_FILE_BYTES: Final = 1 << 20  # it writes markers of transactions at most

MODULES: Final = (
    "asyncpg",
    "obstore",
    "trilogue.log.objects.obstore_store",
    "trilogue.node.cluster.adoption",
    "trilogue.node.cluster.lease_guard",
    "trilogue.node.cluster.opening",
    "trilogue.node.cluster.versions",
    "trilogue.node.metadata_follower",
    "trilogue.node.node",
)


def prepare_recovery(url: str) -> None:
    """Import what `recover_slots` needs, and connect: a job of its process before there is a hurry.

    StorageFailed, CorruptLog if only the modules are there.
    """
    for name in MODULES:
        importlib.import_module(name)
    from trilogue.meta.postgres_connection import prepare_connection
    from trilogue.meta.postgres_opening import read_beforehand

    prepare_connection(url, read_beforehand)


class SlotRecovery(msgspec.Struct, frozen=True):
    """The dead node, and who gets its slots."""

    settings: Settings  # of the node that does it
    place: NodePlace  # of the dead node: its id, and the epoch that is over
    others: tuple[int, ...]  # living nodes


def recover_slots(job: SlotRecovery) -> dict[int, int]:
    """Return the slots that were given away, with their owners; none if another process did it.

    Raises StartError, LogError, OSError if nothing was given away.
    """
    folder = Path(job.settings.text("data")) / FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    make_folder(folder, RECOVERY_HOME + os.urandom(16 - len(RECOVERY_HOME)))
    start_logging(level=job.settings.text("log.level"), form=job.settings.text("log.format"))
    try:
        return asyncio.run(_recover(job, folder))
    except Fenced as error:
        log.info("slots.recovered_elsewhere", extra={"reason": str(error)})
        return {}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _recover(job: SlotRecovery, folder: Path) -> dict[int, int]:
    from trilogue.node.node import Node

    closed = {f"listen.{name}": "off" for name in ALL_LISTENERS}
    own = {
        "data": str(folder),
        "ready-file": None,
        "access.users-file": None,
        "journal.file-size": JOURNAL_FILE_BYTES,
        **closed,
    }
    began_s = time.monotonic()
    node = Node(job.settings.replaced(own, "recovery"), place=job.place)
    node.new_helper = ThreadHelper  # no client waits for this process
    await node.start()
    opened_s = time.monotonic()
    state = node.storage.meta.state
    owners = [state.slots[slot].node_id for slot in range(len(state.slots))]
    node.hand_over.owners = spread_over(owners, state.node_id, job.others)
    shared = node.storage.shared
    assert shared is not None
    shared.keeps_lease = True  # if this fails: it runs out, and is tried again
    await node.drain(asyncio.Event(), FLUSH_LIMIT_S)
    flushed_s = time.monotonic()
    await node.close()
    log.info(
        "slots.recovery_ended",
        extra={
            "node": state.node_id,
            "open_s": round(opened_s - began_s, 3),  # epochs, metadata, rows, replay
            "flush_s": round(flushed_s - opened_s, 3),
            "give_s": round(time.monotonic() - flushed_s, 3),  # the rest of the flush, GiveSlots
        },
    )
    if node.failure is not None:
        raise StartError(f"node {state.node_id} failed: {node.failure}")
    if not node.hand_over.is_done:
        raise StartError(f"the slots of node {state.node_id} stay: its journal is not in segments")
    return node.hand_over.owners
