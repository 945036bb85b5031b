"""Runs the tests twice: on the installed modules, perhaps compiled, and uncompiled."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType

import pytest

from tests.pure import load_pure
from trilogue.entry import arrow, columns, pack, walk
from trilogue.entry.kafka import message_set
from trilogue.entry.kafka import message_set_conversion as kafka_legacy
from trilogue.entry.kafka import record_batch as kafka_batch


@dataclass(frozen=True)
class Room:
    """The compiled modules of the package, and the modules that import them."""

    walk: ModuleType
    columns: ModuleType
    pack: ModuleType
    message_set: ModuleType
    kafka_batch: ModuleType
    arrow: ModuleType
    kafka_legacy: ModuleType


def pure_room() -> Room:
    beneath = {
        f"trilogue__entry__{name.replace('.', '__')}": load_pure(f"trilogue.entry.{name}")
        for name in ("walk", "columns", "pack", "kafka.message_set")
    }
    kafka = load_pure("trilogue.entry.kafka.record_batch", **beneath)
    arrow_twin = load_pure(
        "trilogue.entry.arrow", **beneath, trilogue__entry__kafka__record_batch=kafka
    )
    legacy = load_pure(
        "trilogue.entry.kafka.message_set_conversion",
        **beneath,
        trilogue__entry__kafka__record_batch=kafka,
    )
    return Room(*beneath.values(), kafka_batch=kafka, arrow=arrow_twin, kafka_legacy=legacy)


INSTALLED = Room(walk, columns, pack, message_set, kafka_batch, arrow, kafka_legacy)
PURE = pure_room()


@pytest.fixture(params=[INSTALLED, PURE], ids=["installed", "pure"], scope="session")
def room(request: pytest.FixtureRequest) -> Room:
    return request.param
