"""The pytest plugin: `trilogue_broker` is a broker of one test, `trilogue_brokers` starts more.

A test takes them as parameters. The broker is imported when a collected test does, before the first
test begins.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # sessions without a broker import none
    from trilogue.testing.embedded_broker import EmbeddedBroker

PACKAGE = __name__.partition(".")[0]


class PlainFinder:
    """Finds this package's modules before pytest does.

    pytest compiles each module of a package with a plugin again, to show what its asserts compare.
    That takes seconds, and where no bytecode can be written it takes them in each run.
    """

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module of this package, None for others."""
        return PathFinder.find_spec(name, path, target) if name.startswith(PACKAGE + ".") else None


sys.meta_path.insert(0, PlainFinder)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Import what tests with a broker use, so that it is no part of the first one's time."""
    takes_one = any(
        "trilogue_brokers" in getattr(each, "fixturenames", ()) for each in session.items
    )
    if takes_one and not session.config.option.collectonly:
        import trilogue.client.kafka.sync
        import trilogue.testing.embedded_broker  # noqa: F401


@pytest.fixture
def trilogue_brokers() -> Iterator[Callable[..., EmbeddedBroker]]:
    """Return a function that starts a broker, with the parameters of `start_broker`."""
    from trilogue.testing.embedded_broker import start_broker

    with ExitStack() as stack:
        yield lambda *args, **named: stack.enter_context(start_broker(*args, **named))


@pytest.fixture
def trilogue_broker(trilogue_brokers: Callable[..., EmbeddedBroker]) -> EmbeddedBroker:
    """Return a broker of this test."""
    return trilogue_brokers()
