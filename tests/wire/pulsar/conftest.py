"""Runs the tests twice: on the modules as installed, perhaps compiled, and on their twins."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType

import pytest

from tests.pure import load_pure
from trilogue.wire import fields
from trilogue.wire.pulsar import batch_reader as singles
from trilogue.wire.pulsar import message_codec as hot


@dataclass(frozen=True)
class Room:
    """The modules of the room that are compiled."""

    fields: ModuleType
    hot: ModuleType
    singles: ModuleType


def pure_room() -> Room:
    beneath = {"trilogue__wire__fields": load_pure("trilogue.wire.fields")}
    beneath["trilogue__wire__pulsar__message_codec"] = load_pure(
        "trilogue.wire.pulsar.message_codec", **beneath
    )
    return Room(
        *beneath.values(), singles=load_pure("trilogue.wire.pulsar.batch_reader", **beneath)
    )


INSTALLED = Room(fields=fields, hot=hot, singles=singles)
PURE = pure_room()


@pytest.fixture(params=[INSTALLED, PURE], ids=["installed", "pure"], scope="session")
def room(request: pytest.FixtureRequest) -> Room:
    return request.param
