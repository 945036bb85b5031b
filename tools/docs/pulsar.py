"""The Pulsar gateway's commands, limits and error codes: from the code."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator

from tools.docs.blocks import ROOT, table
from tools.docs.limits import Bound, render, size
from trilogue.broker.cursors.position_store import NAME_SIZE_MAX
from trilogue.broker.cursors.subscription_cursors import SubscriptionLimits
from trilogue.broker.producers.deduplication import DeduplicationLimits
from trilogue.broker.schemas import compatibility as schema_check
from trilogue.broker.schemas import topic_schemas as schemas
from trilogue.entry.pulsar.pulsar_batch import MESSAGE_COUNT_LIMIT
from trilogue.gateway.pulsar.commands import TABLE
from trilogue.gateway.pulsar.connection import SINCE, CommandRow
from trilogue.gateway.pulsar.errors import CODES
from trilogue.gateway.pulsar.metadata import topic_patterns
from trilogue.gateway.pulsar.producers import METADATA_MAX
from trilogue.gateway.pulsar.settings import PulsarSettings
from trilogue.gateway.stream import Limits
from trilogue.wire.pulsar.commands import BY_TYPE
from trilogue.wire.pulsar.frame import SLACK
from trilogue.wire.pulsar.message_codec import MAX_ACK_PARTS, MAX_PROPERTIES

GATEWAY, TESTS = "trilogue.gateway.pulsar", "tests/gateway/pulsar"
UNDER_ANOTHER_NAME = {"auth.handshake": "connection", "commands": "connection"}


def commands() -> str:
    """One row for each command that clients may send."""
    return table(("no.", "command", "access", "tests"), (_command(row) for row in TABLE))


def _command(row: CommandRow) -> tuple[object, ...]:
    module = inspect.getmodule(row.handler)
    assert module is not None
    name = module.__name__.removeprefix(f"{GATEWAY}.")
    *rooms, stem = UNDER_ANOTHER_NAME.get(name, name).split(".")
    tests = "/".join((TESTS, *rooms, f"test_{stem}.py"))
    access = f"{row.operation.value} on {row.resource.value}"
    return int(row.type), BY_TYPE[row.type].name, access, link(tests)


def link(path: str) -> str:
    """A link to a file of the repository, where it is there."""
    name = path.rpartition("/")[2]
    return f"[{name}](../../{path})" if (ROOT / path).exists() else ""


def sent() -> str:
    """One row for each command that older clients do not get, with its first version."""
    rows = sorted((version, BY_TYPE[kind].name) for kind, version in SINCE.items() if version)
    return table(("since version", "command"), rows)


def errors() -> str:
    """One row for each exception of the rooms below the gateway."""
    rows = [
        (room(kind), f"`{kind.__name__}`", f"`{code.name}`", int(code), first_line(kind))
        for kind, code in CODES.items()
        if kind.__module__.startswith("trilogue.")
    ]
    return table(("room", "reason", "Pulsar's error", "code", "meaning"), rows)


def room(kind: type) -> str:
    """Return the name of the room (top-level package) of a class."""
    return kind.__module__.split(".")[1]


def first_line(kind: type) -> str:
    """Return the first line of a class's docstring."""
    return (inspect.getdoc(kind) or "").partition("\n\n")[0]


def bounds() -> str:
    """Every limit of a Pulsar connection, and of the state that clients keep in the broker."""
    return render([*_bounds(), *_kept()])


def _kept() -> Iterator[Bound]:
    """Limits of the state that clients keep in the broker."""
    kept, names = SubscriptionLimits(), DeduplicationLimits()
    yield Bound("durable subscriptions of all topics", f"{kept.count_max:,}", "is refused")
    yield Bound("name of a subscription; its properties",
                f"{NAME_SIZE_MAX:,} bytes; {size(kept.properties_size_max)}",
                "is refused")  # fmt: skip
    yield Bound("ranges of acked messages of one subscription", f"{kept.ranges_max:,}",
                "the message comes again")  # fmt: skip
    yield Bound("the same, kept over a flush and a restart", f"{kept.ranges_kept:,}",
                "messages of the highest may come again")  # fmt: skip
    yield Bound("producers' names that one partition remembers for de-duplication",
                f"{names.producers_max:,}, idle for {names.expiration_ms // 3_600_000} h",
                "the one that was idle longest is forgotten")  # fmt: skip


def _bounds() -> Iterator[Bound]:
    limits, pulsar = Limits(), PulsarSettings()
    cut, refused = "its connection is closed", "`NotAllowedError`"
    count: Callable[[int], str] = "{:,}".format
    yield Bound("a message of a Pulsar client", size(pulsar.message_bytes_max),
                f"{cut}, from {size(SLACK)} above it on", "pulsar.max-message")  # fmt: skip
    yield Bound("a frame of a Pulsar client before CONNECT",
                size(limits.unauthenticated_frame_bytes), cut)  # fmt: skip
    yield Bound("a frame of a Pulsar client without a message", size(pulsar.command_bytes_max),
                cut)  # fmt: skip
    yield Bound("a Pulsar client that sends no CONNECT", f"{pulsar.connect_s:.0f} s", cut)
    yield Bound("a Pulsar client that is silent", f"{2 * pulsar.keep_alive_s:.0f} s", cut,
                "pulsar.keep-alive")  # fmt: skip
    yield Bound("messages of a Pulsar connection that are not durable yet",
                count(pulsar.sends_in_flight_max), "is not read until half are")  # fmt: skip
    yield Bound("unfinished requests of a Pulsar connection",
                f"{pulsar.requests_in_flight_max:,}, {size(pulsar.requests_bytes_max)}",
                "is not read until half are done")  # fmt: skip
    yield Bound("metadata of one producer or consumer", f"{METADATA_MAX:,} characters", refused)
    yield Bound("metadata and key ranges of all producers and consumers of one connection",
                size(pulsar.metadata_bytes_max), refused)  # fmt: skip
    yield Bound("producers of one connection", count(pulsar.producers_max), refused)
    yield Bound("consumers of one connection", count(pulsar.consumers_max), refused)
    yield Bound("watches of one connection", count(pulsar.watchers_max), refused)
    yield Bound("watches of all connections; topics that they list together",
                f"{count(pulsar.all_watchers_max)}; {count(pulsar.watched_topics_max)}",
                refused + "; at twice as many topics a connection is closed")  # fmt: skip
    yield Bound("a pattern of topics that is evaluated here",
                f"{topic_patterns.LENGTH_MAX} characters", "its client evaluates it")  # fmt: skip
    yield Bound("messages in one batch", count(MESSAGE_COUNT_LIMIT), "`MetadataError`")
    yield Bound("ids and words of ack sets in one ACK", count(MAX_ACK_PARTS), cut)
    yield Bound("properties of one message, where it is converted", count(MAX_PROPERTIES),
                "readers of another protocol skip it")  # fmt: skip
    yield Bound("a definition of a schema", f"{size(schema_check.SIZE_MAX)}, "
                f"{schema_check.TYPES_MAX:,} types", "`IncompatibleSchema`")  # fmt: skip
    yield Bound("schemas of one topic",
                f"{schemas.VERSIONS_MAX:,} versions, {size(schemas.SIZE_MAX)}",
                "`IncompatibleSchema`")  # fmt: skip
    yield Bound("schemas of all topics and subjects", size(schemas.ALL_SIZE_MAX),
                "`IncompatibleSchema`; the registry: 42201")  # fmt: skip
