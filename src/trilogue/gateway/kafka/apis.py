"""THE TABLE: every request that the Kafka door serves. What is not a row here is not served.

`served` is the range of versions that are decoded and answered, and what ApiVersions tells.

`told` is false where a request is served and ApiVersions is silent about it, so that clients do not
ask: telemetry, as with a Kafka that has nobody to receive it.

`resource` and `operation` are what a request's handler asks the authorizer about, through
`Call.allowed`. A few handlers ask about more than that, and say so in their own first lines.

`frame_bytes_max` bounds what is decoded at all: many small things in a large frame take long.
Produce is bounded by the connection's limit alone, since most of its bytes are not looked at.

`elements_max` bounds how many things (topics, partitions, members) a request may name: most
handlers go through all of them in one turn of the loop, at 1 to 5 us each, and nobody may hold it
for longer than 50 ms. `PATIENT` ones go through them in steps. What names more is not decoded: the
codec knows the bound. Bare numbers (of partitions) cost it little, and are counted afterwards.

`aside` says that an answer may be large however small the request is: what a coroutine answers is
then written in a thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from trilogue.broker.access import Operation, ResourceKind
from trilogue.gateway.kafka import (
    acls,
    alter_quotas,
    api_versions,
    cluster,
    config_resources,
    configs,
    consumer_groups,
    delete_groups,
    delete_records,
    describe_consumer_groups,
    describe_groups,
    describe_producers,
    describe_quotas,
    describe_transactions,
    elections,
    features,
    fetch,
    groups,
    leader_epochs,
    list_groups,
    list_offsets,
    list_transactions,
    log_dirs,
    metadata,
    nodes,
    offsets,
    partitions,
    produce,
    quorum,
    reassignments,
    scram,
    telemetry,
    topic_partitions,
    topics,
    transactions,
)
from trilogue.gateway.kafka.shared import Handler
from trilogue.wire.kafka.api import MESSAGES
from trilogue.wire.kafka.api_versions import ApiVersion, ApiVersionsResponse
from trilogue.wire.kafka.compile import decoder, encoder
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.schema import table

API_VERSIONS = 18
MIB, GIB = 1 << 20, 1 << 30
GROUP_BYTES = 36 * MIB  # what all members of a group may say, and a little
MANY, FETCHED, PATIENT = 25_000, 50_000, 200_000


class Row(NamedTuple):
    """One API: its messages, the versions served, who handles it, and what access it needs."""

    key: int
    request: type
    response: type
    served: tuple[int, int]
    handler: Handler
    resource: ResourceKind
    operation: Operation
    frame_bytes_max: int
    elements_max: int
    told: bool = True
    aside: bool = False

    @property
    def name(self) -> str:
        """Kafka's name for it."""
        return self.request.__name__.removesuffix("Request")


def _row(
    key: int,
    served: tuple[int, int],
    handler: Handler,
    resource: ResourceKind,
    operation: Operation,
    *,
    frame_bytes_max: int = 8 * MIB,
    elements_max: int = 10_000,
    told: bool = True,
    aside: bool = False,
) -> Row:
    request, response = MESSAGES[key]
    return Row(
        key,
        request,
        response,
        served,
        handler,
        resource,
        operation,
        frame_bytes_max,
        elements_max,
        told,
        aside,
    )


TOPIC, GROUP, CLUSTER = ResourceKind.TOPIC, ResourceKind.GROUP, ResourceKind.CLUSTER
TRANSACTION = ResourceKind.TRANSACTION
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
SETTINGS, CHANGE = Operation.DESCRIBE_SETTINGS, Operation.ALTER_SETTINGS
CREATE, DELETE, ALTER = Operation.CREATE, Operation.DELETE, Operation.ALTER

TABLE: tuple[Row, ...] = (
    _row(0, (0, 13), produce.handle, TOPIC, WRITE, frame_bytes_max=GIB, elements_max=MANY),
    _row(1, (0, 18), fetch.handle, TOPIC, READ, elements_max=FETCHED),
    _row(2, (0, 11), list_offsets.handle, TOPIC, DESCRIBE, elements_max=PATIENT),
    _row(3, (0, 13), metadata.handle, TOPIC, DESCRIBE, elements_max=MANY),
    _row(8, (0, 10), offsets.commit, GROUP, READ, elements_max=MANY),
    _row(9, (0, 10), offsets.fetch, GROUP, DESCRIBE, elements_max=FETCHED, aside=True),
    _row(10, (0, 6), groups.find_coordinator, GROUP, DESCRIBE, elements_max=FETCHED),
    _row(11, (0, 9), groups.join, GROUP, READ, frame_bytes_max=GROUP_BYTES, elements_max=PATIENT),
    _row(12, (0, 4), groups.heartbeat, GROUP, READ),
    _row(13, (0, 5), groups.leave, GROUP, READ),
    _row(14, (0, 5), groups.sync, GROUP, READ, frame_bytes_max=GROUP_BYTES, elements_max=PATIENT),
    _row(15, (0, 6), describe_groups.handle, GROUP, DESCRIBE, elements_max=FETCHED, aside=True),
    _row(16, (0, 5), list_groups.handle, CLUSTER, DESCRIBE, aside=True),
    # Asked before anybody can have logged in, so its handler asks for no access.
    _row(18, (0, 4), api_versions.handle, CLUSTER, DESCRIBE),
    _row(19, (0, 7), topics.create, TOPIC, CREATE, elements_max=PATIENT),
    _row(20, (0, 6), topics.delete, TOPIC, DELETE, elements_max=PATIENT),
    _row(21, (0, 2), delete_records.handle, TOPIC, DELETE),
    _row(22, (0, 5), transactions.init_producer_id, CLUSTER, Operation.IDEMPOTENT_WRITE),
    _row(23, (0, 4), leader_epochs.handle, TOPIC, DESCRIBE, elements_max=PATIENT),
    _row(29, (0, 3), acls.describe, CLUSTER, DESCRIBE),
    _row(30, (0, 3), acls.create, CLUSTER, ALTER),
    _row(31, (0, 3), acls.delete, CLUSTER, ALTER),
    _row(32, (0, 4), configs.describe, TOPIC, SETTINGS, elements_max=FETCHED, aside=True),
    _row(33, (0, 2), configs.alter, TOPIC, CHANGE, elements_max=MANY),
    _row(34, (0, 2), log_dirs.alter, CLUSTER, ALTER),
    _row(35, (0, 5), log_dirs.describe, CLUSTER, DESCRIBE, aside=True),
    _row(37, (0, 3), partitions.create, TOPIC, ALTER, elements_max=PATIENT),
    _row(42, (0, 2), delete_groups.handle, GROUP, DELETE, elements_max=FETCHED),
    _row(43, (0, 2), elections.handle, CLUSTER, ALTER),
    _row(44, (0, 1), configs.alter_incrementally, TOPIC, CHANGE, elements_max=MANY),
    _row(45, (0, 1), reassignments.alter, CLUSTER, ALTER),
    _row(46, (0, 0), reassignments.list_moves, CLUSTER, DESCRIBE),
    _row(47, (0, 0), delete_groups.positions, GROUP, DELETE),
    _row(48, (0, 1), describe_quotas.handle, CLUSTER, Operation.DESCRIBE_SETTINGS, aside=True),
    _row(49, (0, 1), alter_quotas.handle, CLUSTER, Operation.ALTER_SETTINGS),
    _row(50, (0, 0), scram.describe, CLUSTER, DESCRIBE),
    _row(51, (0, 0), scram.alter, CLUSTER, ALTER),
    _row(55, (0, 2), quorum.handle, CLUSTER, DESCRIBE),
    _row(57, (0, 2), features.handle, CLUSTER, ALTER),
    _row(60, (0, 2), cluster.handle, CLUSTER, DESCRIBE),
    _row(61, (0, 0), describe_producers.handle, TOPIC, READ, aside=True),
    _row(64, (0, 0), nodes.handle, CLUSTER, ALTER),
    _row(65, (0, 0), describe_transactions.handle, TRANSACTION, DESCRIBE),
    _row(66, (0, 2), list_transactions.handle, TRANSACTION, DESCRIBE),
    _row(68, (0, 1), consumer_groups.heartbeat, GROUP, READ, elements_max=MANY),
    _row(
        69,
        (0, 1),
        describe_consumer_groups.handle,
        GROUP,
        DESCRIBE,
        elements_max=FETCHED,
        aside=True,
    ),
    _row(71, (0, 0), telemetry.subscriptions, CLUSTER, DESCRIBE, told=False),
    _row(72, (0, 0), telemetry.push, CLUSTER, DESCRIBE, told=False),
    _row(74, (0, 1), config_resources.handle, CLUSTER, Operation.DESCRIBE_SETTINGS),
    _row(75, (0, 0), topic_partitions.handle, TOPIC, DESCRIBE, elements_max=FETCHED),
)


class Api:
    """One row in one version: its compiled codec, made when a client first speaks it."""

    __slots__ = ("decode", "encode", "flexible_reply", "key", "name", "row", "throttles", "version")

    def __init__(self, row: Row, version: int) -> None:
        self.row = row
        self.key = row.key
        self.name = row.name
        self.version = version
        self.decode: Callable[..., tuple[Any, int]] = decoder(
            row.request, version, row.elements_max
        )
        self.encode: Callable[[Any, bytearray], None] = encoder(row.response, version)
        # Whether its answers can say how long the client should wait, in some version.
        self.throttles = any(each.name == "throttle_time_ms" for each in table(row.response).fields)
        # ApiVersions is answered in header v0 always: the client does not know yet what we speak.
        self.flexible_reply = row.key != API_VERSIONS and version >= table(row.response).flexible


_BY_KEY = {row.key: row for row in TABLE}
_SPOKEN: dict[int, Api] = {}
spoken: Final = _SPOKEN.get  # what `find` looks at first


def find(number: int) -> Api | None:
    """The API of this (key << 16 | version), or None when it is not served."""
    return _SPOKEN.get(number) or _find(number)


def _find(number: int) -> Api | None:
    key, version = number >> 16, number & 0xFFFF
    row = _BY_KEY.get(key)
    if row is None or not row.served[0] <= version <= row.served[1]:
        return None
    _SPOKEN[number] = Api(row, version)
    return _SPOKEN[number]


def advertised() -> list[ApiVersion]:
    """What ApiVersions tells."""
    return [
        ApiVersion(api_key=row.key, min_version=row.served[0], max_version=row.served[1])
        for row in TABLE
        if row.told
    ]


def versions_v0() -> Api:
    """The one form that every client can read when it asked in a version that we do not know."""
    api = find(API_VERSIONS << 16)
    assert api is not None
    return api


def unsupported_version() -> ApiVersionsResponse:
    """Error 35 with the versions of ApiVersions itself (KIP-511), for a second try."""
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[version for version in advertised() if version.api_key == API_VERSIONS],
    )
