"""The pytest plugin: `trilogue_broker` is a broker of one test, `trilogue_brokers` starts more.

A test takes them as parameters; nothing is imported before a test does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # the broker is imported by the first test that wants one
    from trilogue.testing.embedded_broker import EmbeddedBroker


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
