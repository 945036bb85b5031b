"""The TubeMQ gateway's methods, limits and error codes: from the code."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from tools.docs.blocks import ROOT, table
from tools.docs.limits import Bound, render, size
from tools.docs.pulsar import first_line, link, room
from trilogue.broker.tubemq.balanced_group import BalanceSettings
from trilogue.gateway.tubemq.connection import UNDECODABLE_MAX
from trilogue.gateway.tubemq.errors import CODES, TEXT_MAX
from trilogue.gateway.tubemq.gateway_context import SLACK
from trilogue.gateway.tubemq.master import PARTS_MAX
from trilogue.gateway.tubemq.methods import BROKER, MASTER
from trilogue.gateway.tubemq.request_context import MethodSpec
from trilogue.gateway.tubemq.settings import TubeSettings
from trilogue.wire.tubemq.frame import MAX_BLOCKS

TESTS = "tests/gateway/tubemq"
BALANCE = BalanceSettings()
UNDER_ANOTHER_NAME: dict[str, str] = {}


def methods() -> str:
    """One row for each method, of the master and of the broker."""
    rows = [("master", row) for row in MASTER] + [("broker", row) for row in BROKER]
    return table(("id", "method", "listener", "access", "tests"), (_method(*each) for each in rows))


def _method(listener: str, row: MethodSpec) -> tuple[object, ...]:
    module = inspect.getmodule(row.handler)
    assert module is not None
    stem = module.__name__.rpartition(".")[2]
    tests = f"{TESTS}/test_{stem}.py"
    if not (ROOT / tests).exists():
        tests = f"{TESTS}/test_{UNDER_ANOTHER_NAME.get(stem, stem)}.py"
    access = f"{row.operation.value} on {row.resource.value}"
    return row.method.number, row.method.name, listener, access, link(tests)


def errors() -> str:
    """One row for each exception of the rooms below the gateway."""
    rows = [
        (room(kind), f"`{kind.__name__}`", int(code), code.name, first_line(kind))
        for kind, code in CODES.items()
        if kind.__module__.startswith("trilogue.")
    ]
    return table(("room", "reason", "errCode", "name", "meaning"), rows)


def bounds() -> str:
    """Every limit of a TubeMQ connection, and of the state that clients keep in the gateway."""
    return render(_bounds())


def _bounds() -> Iterator[Bound]:
    tube = TubeSettings()
    cut, refused = "its connection is closed", "403"
    yield Bound("a message of a TubeMQ client", f"{size(tube.message_bytes_max)} and {size(SLACK)}",
                "400", "topics.max-entry")  # fmt: skip
    yield Bound("blocks of a TubeMQ frame", f"{MAX_BLOCKS:,}", cut)
    yield Bound("a frame to the broker", size(tube.frame_bytes_max), cut)
    yield Bound("any other request", size(tube.request_bytes_max), cut)
    yield Bound("undecodable requests of one TubeMQ connection", f"{UNDECODABLE_MAX}", cut)
    yield Bound("sends of a TubeMQ connection that are not durable yet",
                f"{tube.sends_in_flight_max:,}", "is not read until half are")  # fmt: skip
    yield Bound("unfinished or held requests of a TubeMQ connection",
                f"{tube.requests_in_flight_max:,}, {size(tube.requests_bytes_max)}",
                "is not read until half are answered")  # fmt: skip
    yield Bound("a send that waits for room in the log", "9/10 of its own timeout", "419")
    yield Bound("producers that the master knows", f"{tube.producers_max:,}", refused)
    yield Bound("a producer that is silent", f"{tube.producer_timeout_s:.0f} s",
                "is forgotten: 411", "tubemq.producer-timeout")  # fmt: skip
    yield Bound("topics that one producer names", f"{tube.topics_max:,}", "400")
    yield Bound("consumers that the master balances", f"{BALANCE.members_max:,} in a group, "
                f"{BALANCE.all_members_max:,} in all, {BALANCE.groups_max:,} groups",
                "403, 503")  # fmt: skip
    yield Bound("metadata of all consumers at the master", size(BALANCE.size_bytes_max),
                "503")  # fmt: skip
    yield Bound("a consumer that is silent", f"{tube.consumer_timeout_s:.0f} s",
                "its partitions are given to others: 411", "tubemq.consumer-timeout")  # fmt: skip
    yield Bound("a consumer that does not answer an event",
                f"{2 * tube.consumer_timeout_s:.0f} s, {BALANCE.tries_max} times",
                "its partitions are given to others: 411")  # fmt: skip
    yield Bound("partitions in one rebalance event", f"{BALANCE.event_parts_max:,}",
                "the rest comes with the next")  # fmt: skip
    yield Bound("partitions that a consumer reports", f"{PARTS_MAX:,}", "400")
    yield Bound("the id of a TubeMQ client", f"{tube.client_id_max:,} characters", "400")
    yield Bound("text of an error", f"{TEXT_MAX:,} characters", "is truncated")
