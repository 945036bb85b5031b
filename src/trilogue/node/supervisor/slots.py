"""The owners of the slots of a data directory: decided before its nodes start.

A slot changes its owner only when the journal of the former owner is in segments: the next owner
finds everything there and in meta.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from trilogue.log.directory import FIRST_NODE, DataDirectory
from trilogue.log.files import OsFileSystem
from trilogue.log.formats import check_formats
from trilogue.meta.operations import AssignSlots, Op
from trilogue.meta.sqlite import SqliteMeta
from trilogue.meta.state import MetaState
from trilogue.node.settings.table import Settings
from trilogue.node.supervisor.slot_plans import spread_slots

META = "meta.sqlite"


class SlotPlan(msgspec.Struct, frozen=True):
    """The owners that the slots are to have."""

    owners: tuple[int, ...]
    former_owners: tuple[int, ...]  # whose journals have to be in segments first
    orphans_below: int  # segments with lower ids that meta does not know belong to no node


def needs_supervisor(settings: Settings) -> bool:
    """Whether several nodes serve the directory, or did before and their slots have to move."""
    return settings.number("nodes") > 1 or not _is_owned_by_one(Path(settings.text("data")))


def _is_owned_by_one(path: Path) -> bool:
    """Whether the first node owns all slots of a directory, which may be new or of older format."""
    file = path / META
    query = "SELECT count(*) FROM slots WHERE node_id <> ?"
    try:
        if not file.exists():
            return True
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as meta:
            return bool(meta.execute(query, (FIRST_NODE,)).fetchone() == (0,))
    except (OSError, sqlite3.Error):  # the start will name what is wrong
        return True


def plan_slots(path: Path, nodes: int, slots: int) -> SlotPlan:
    """Return the owners of the slots of a directory, which may be new. LogError, OSError.

    `slots` is their number where there is one only.
    """
    state = _change(path, lambda _: [])
    present = [state.slots[slot].node_id for slot in range(len(state.slots))]
    if len(present) == 1 and nodes > 1:
        present *= slots
    owners = spread_slots(present, range(1, nodes + 1))
    moved = {before for before, after in zip(present, owners, strict=True) if before != after}
    return SlotPlan(owners, tuple(sorted(moved)), state.next_ids["segment"])


def assign_slots(path: Path, owners: Sequence[int]) -> None:
    """Record the owners of slots, if they are others than before. LogError, OSError."""

    def change(state: MetaState) -> list[Op]:
        before = [state.slots[slot].node_id for slot in range(len(state.slots))]
        return [] if before == list(owners) else [AssignSlots(tuple(owners))]

    _change(path, change)


def owners_of_slots(path: Path) -> list[int]:
    """Return the owners that meta has, beside nodes that serve. sqlite3.Error."""
    file = path / META
    with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as meta:
        return [owner for (owner,) in meta.execute("SELECT node_id FROM slots ORDER BY slot")]


def move_slots(path: Path, owners: Sequence[int], node_id: int) -> None:
    """Record other owners while nodes serve that neither give nor get a slot. LogError, OSError.

    `node_id` is one of the former owners; its process has ended.
    """
    _change(path, lambda _: [AssignSlots(tuple(owners))], node_id, is_shared=True)


def _change(
    path: Path,
    change: Callable[[MetaState], list[Op]],
    node_id: int = FIRST_NODE,
    *,
    is_shared: bool = False,
) -> MetaState:
    """Write a change of meta as a node that does not run; the caller has the directory locked."""
    fs = OsFileSystem()
    directory = DataDirectory.open_shared(fs, path, node_id)
    try:
        check_formats(fs, directory)
        is_new = not (fs.listdir(directory.journal) or fs.listdir(directory.segments))
        meta = SqliteMeta.open(
            directory.meta, create=is_new and not is_shared, node_id=node_id, shared=is_shared
        )
        try:
            ops = change(meta.state)
            if ops:
                asyncio.run(_write(meta, ops))
            return meta.state
        finally:
            meta.close()
    finally:
        directory.close()


async def _write(meta: SqliteMeta, ops: Sequence[Op]) -> None:
    await meta.write(ops)
