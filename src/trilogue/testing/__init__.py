"""A broker inside a test: for all three protocols, with faults by rule and a clock that tests move.

    from trilogue.testing import start_broker

    with start_broker() as broker:
        producer = Producer({"bootstrap.servers": broker.kafka})       # any client
        ...
        assert [message.value for message in broker.messages("orders")] == [b"one"]

With pytest the fixture `trilogue_broker` is a broker of one test (plugin.py). The page
docs/how-to/test-with-trilogue.md has examples.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trilogue.client.lazy import lazy_exports

if TYPE_CHECKING:
    from trilogue.testing.clock import Clock
    from trilogue.testing.embedded_broker import EmbeddedBroker, start_broker
    from trilogue.testing.faults import Action, Fault, Request

__all__ = ["Action", "Clock", "EmbeddedBroker", "Fault", "Request", "start_broker"]

# pytest imports this package at each of its starts, for the plugin: without the broker.
__getattr__ = lazy_exports(
    __name__,
    {
        "clock": ("Clock",),
        "embedded_broker": ("EmbeddedBroker", "start_broker"),
        "faults": ("Action", "Fault", "Request"),
    },
)
