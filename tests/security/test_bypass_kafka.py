"""The bypass matrix, Kafka: every request of the table, in every spelling of a denied topic's name.

Requests are filled in by their declarations, so an API that is new is in the matrix at once. Each
must be answered with an authorization error or show nothing, and change nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.gateway.kafka.rig import Rig, batch, settle
from tests.gateway.loop import on_loop
from tests.security.bypass import ORDERS, SECRET, NoAcls, describe_state
from trilogue.broker.access.audit import AuditLog
from trilogue.broker.access.authorizer import Operation, Principal, Resource, ResourceKind
from trilogue.broker.access.delegation_tokens import DelegationTokenLimits
from trilogue.broker.facts import DEFAULT_RETENTION, CursorMove, Protocol
from trilogue.broker.names import parse_kafka
from trilogue.gateway.kafka import apis
from trilogue.gateway.listener_security import ListenerSecurity
from trilogue.wire.kafka.codec.schema import Field, Wire, table
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.topics.topics import DeleteTopicState

SPELLINGS = ("orders", "public/default/orders")  # both are the topic
OTHERS = (  # names of other things, or of nothing
    "Orders",
    "orders/",
    "/orders",
    "%6frders",
    "orders-partition-0",
    "persistent://public/default/orders",
    "public/default/orders-partition-0",
    "public//orders",
    "../default/orders",
    "orders\0",
    "оrders",  # noqa: RUF001 - a Cyrillic o
)
GROUP = "readers"
DENIED = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
OPEN = {
    17: "a client that has not logged in chooses its mechanism",
    18: "ApiVersions comes before the login",
    36: "the login",
    38: "on a listener without SASL there are no tokens: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED",
    39: "as 38",
    40: "as 38",
    41: "as 38",
    71: "telemetry: no metrics are requested",
    72: "telemetry: no metrics are requested",
}
ON_THE_CLUSTER = {
    27: "WriteTxnMarkers: rights on the cluster are enough",
    34: "AlterReplicaLogDirs: as 27",
    35: "DescribeLogDirs: as 27",
    43: "ElectLeaders: as 27",
    45: "AlterPartitionReassignments: as 27",
    46: "ListPartitionReassignments: as 27",
    71: "telemetry: each answer has another id",
}
PARTITION_FIELDS = {"partition", "partition_index", "index"}
PARTITIONS_FIELDS = {"partitions", "partition_indexes", "partition_ids"}
SILENT = {35: 3}  # a refusal is an empty list before this version
LISTS = {3, 16, 35, 60, 66, 69, 74}  # may also answer with an empty list instead of an error
GROUP_FIELDS = {"group_id", "groups_names", "groups", "coordinator_keys", "key"}
TOPIC_FIELDS = {"name", "topic", "topics", "topic_names", "resource_name", "subscribed_topic_names"}
NUMBERS = {"acks": 1, "resource_type": 2, "max_bytes": 1 << 20, "partition_max_bytes": 1 << 20}
NUMBERS |= {"replica_id": -1, "num_partitions": 1, "replication_factor": 1, "count": 9}
NUMBERS |= {"timeout_ms": 1_000, "session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000}
NUMBERS |= {
    "session_epoch": -1,
    "producer_id": -1,
    "producer_epoch": -1,
    "current_leader_epoch": -1,
}
NUMBERS |= {"max_timestamp": -1, "timestamp": -1, "limit": 10, "response_partition_limit": 10}
NUMBERS |= {"generation_id_or_member_epoch": -1, "committed_leader_epoch": -1, "endpoint_type": 1}
NUMBERS |= {"pattern_type_filter": 1, "resource_type_filter": 1, "resource_pattern_type": 3}
NUMBERS |= {"operation": 3, "permission_type": 3, "mechanism": 1, "iterations": 4096}
NUMBERS |= {"generation_id": 1, "partition_limit": 10, "config_operation": 0}


OMITTED = {"cursor", "assignments", "transactional_id"}


def fill(cls: type, version: int, name: str, topic_id: bytes) -> Any:
    """Return a message with something in every field."""
    given = {}
    for field in table(cls).fields:
        if field.present(version) and not field.is_tagged(version):
            given[field.name] = value_of(field, version, name, topic_id)
    if cls is DeleteTopicState:
        given["topic_id"] = bytes(16)  # one is named, or has an id
    return cls(**given)


def value_of(field: Field, version: int, name: str, topic_id: bytes) -> Any:
    """Return a value for one field, by its name and type."""
    if field.name in OMITTED and field.null <= version:
        return None
    if field.wire.kind == "array":
        if isinstance(field.item, Wire):
            return [scalar(field.item, field.name, name, topic_id)]
        if field.name in {"assignments", "forgotten_topics_data"}:
            return []
        assert field.item is not None
        return [fill(field.item, version, name, topic_id)]
    if field.wire.kind == "struct":
        assert isinstance(field.item, type)
        return fill(field.item, version, name, topic_id)
    return scalar(field.wire, field.name, name, topic_id)


def scalar(wire: Wire, field: str, name: str, topic_id: bytes) -> Any:
    """Return a number, text or bytes for a field of this name."""
    made = {"records": batch("forged"), "16s": topic_id, "bytes": bytes(32)}
    if wire.kind != "string":
        return made.get(wire.code or wire.kind, made.get(wire.kind, NUMBERS.get(field, 0)))
    if field in TOPIC_FIELDS:
        return name
    if field in GROUP_FIELDS:
        return GROUP
    texts = {"member_id": "", "protocol_type": "consumer", "host": "*", "host_filter": "*"}
    texts |= {"principal": "User:ANONYMOUS", "principal_filter": "User:ANONYMOUS"}
    texts |= {"entity_type": "user", "transactional_id": "t", "transactional_ids": "t"}
    return texts.get(field, "x")


def codes_of(response: Any) -> Iterator[int]:
    """Iterate over all error codes in a response."""
    if isinstance(response, list | tuple):
        for each in response:
            yield from codes_of(each)
    elif hasattr(type(response), "__wire_table__"):
        for field in table(type(response)).fields:
            value = getattr(response, field.name)
            if field.name.endswith("error_code"):
                yield value
            else:
                yield from codes_of(value)


def bytes_of(response: Any) -> str:
    """Return a text with everything in a response, records too."""
    parts = [repr(response)]
    if hasattr(type(response), "__wire_table__"):
        for field in table(type(response)).fields:
            parts.append(bytes_of(getattr(response, field.name)))
    elif isinstance(response, list | tuple):
        parts += map(bytes_of, response)
    elif isinstance(response, memoryview | bytearray):
        parts.append(repr(bytes(response)))
    return "".join(parts)


class Denying(Rig):
    """A cluster with the secret topic, whose client may do nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.rules: Any = NoAcls()

    async def prepare(self) -> bytes:
        topic = self.topic("orders")
        topic.partitions[0].append(memoryview(batch(SECRET)), now_ms=self.now_ms)
        await settle()
        return topic.topic_id


def rows() -> Iterator[Any]:
    for spec in apis.TABLE:
        for version in {spec.served[0], (spec.served[0] + spec.served[1]) // 2, spec.served[1]}:
            yield pytest.param(spec, version, id=f"{spec.name}-v{version}")


@pytest.mark.parametrize("name", SPELLINGS)
@pytest.mark.parametrize(("spec", "version"), list(rows()))
@on_loop
async def test_a_request_without_rights_gets_and_changes_nothing(spec, version, name):
    async with Denying() as rig:
        topic_id = await rig.prepare()
        before = describe_state(rig)[:-1]
        request = fill(spec.request, version, name, topic_id)
        peer = rig.peer()
        peer.send(request, version)
        await peer.wait()
        await settle()

        assert describe_state(rig) == (*before, [])
        if peer.is_cut:
            return
        response = peer.answer()
        assert SECRET.decode() not in bytes_of(response)
        if spec.key in OPEN:
            return
        codes = set(codes_of(response))
        if spec.key in LISTS and not codes & DENIED:
            assert "orders" not in bytes_of(response)
            assert GROUP not in bytes_of(response)
            return
        assert codes & DENIED, (codes, response)
        assert rig.rules.asked


@pytest.mark.parametrize(("spec", "version"), list(rows()))
@on_loop
async def test_each_refusal_is_one_line_of_the_audit_log(spec, version):
    """A list that leaves things out refuses nothing; no line has a secret."""
    async with Denying() as rig:
        await rig.prepare()
        lines: list[dict[str, object]] = []
        rig.gateway.audit = AuditLog(lines.append, lambda: rig.now_ms)
        peer = rig.peer()
        peer.send(fill(spec.request, version, "orders", bytes(16)), version)
        await peer.wait()
        await settle()
        refused = [line for line in lines if line["event"] == "refused"]
        assert len(lines) == len(refused), "nothing was done"
        assert SECRET.decode() not in repr(lines)
        codes = set() if peer.is_cut else set(codes_of(peer.answer()))
        expected = len(codes & DENIED) or (spec.key in SILENT and version < SILENT[spec.key])

        assert len(refused) == expected or spec.key in OPEN, refused


class TopicsDenied(NoAcls):
    """Everything is allowed but what is done with topics."""

    def allowed(
        self, principal: Principal, operation: Operation, resource: Resource, host: str = ""
    ) -> bool:
        if resource.kind not in {ResourceKind.TOPIC, ResourceKind.NAMESPACE}:
            return True
        return super().allowed(principal, operation, resource, host)


class Answers(Denying):
    """The same cluster; `positions` of the group are committed, and can be compared."""

    async def prepare(self) -> bytes:
        topic_id = await super().prepare()
        partition = self.broker.cluster.topic(parse_kafka("orders")).partitions[0]
        move = CursorMove(partition.partition_id, 4_711, -1, "a secret position")
        commit = self.broker.commit
        commit(Protocol.KAFKA, GROUP, [move], at_ms=None, retention_ms=DEFAULT_RETENTION)
        await settle()
        return topic_id

    async def answer(
        self, spec: Any, version: int, name: str, index: int = 0
    ) -> tuple[list[int], str]:
        """Return the error codes of an answer, and all of it, without the name."""
        request = fill(spec.request, version, name, bytes(16))
        set_partition(request, index)
        peer = self.peer()
        peer.send(request, version)
        await peer.wait()
        await settle()
        if peer.is_cut:
            return [], "closed"
        response = peer.answer()
        shown = re.sub(r"<memory at \w+>", "", bytes_of(response))
        return list(codes_of(response)), shown.replace(name, "NAME")


def set_partition(message: Any, index: int) -> None:
    """Name another partition wherever a message names one."""
    if isinstance(message, list):
        for each in message:
            set_partition(each, index)
    elif hasattr(type(message), "__wire_table__"):
        for field in table(type(message)).fields:
            value = getattr(message, field.name)
            if field.name in PARTITION_FIELDS:
                setattr(message, field.name, index)
            elif field.name in PARTITIONS_FIELDS and value and isinstance(value[0], int):
                setattr(message, field.name, [index])
            else:
                set_partition(value, index)


@pytest.mark.parametrize("rules", [NoAcls, TopicsDenied])
@pytest.mark.parametrize(("spec", "version"), list(rows()))
@on_loop
async def test_no_answer_reveals_whether_a_topic_exists(spec, version, rules):
    """A client without rights gets the same as for a topic that is missing."""
    if spec.key in ON_THE_CLUSTER:
        return
    async with Answers() as rig:
        await rig.prepare()
        rig.rules = rules()
        codes, present = await rig.answer(spec, version, "orders")
        assert "4711" not in present
        assert SECRET.decode() not in present
        assert (codes, present) == await rig.answer(spec, version, "absent")


@pytest.mark.parametrize(("spec", "version"), list(rows()))
@on_loop
async def test_no_answer_reveals_how_many_partitions_a_topic_has(spec, version):
    if spec.key in ON_THE_CLUSTER:
        return
    async with Answers() as rig:
        await rig.prepare()
        rig.rules = TopicsDenied()
        there, _ = await rig.answer(spec, version, "orders", 0)
        beyond, _ = await rig.answer(spec, version, "orders", 977)
        assert there == beyond


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("key", [0, 1, 2, 3, 19, 20, 21, 23, 32, 33, 37, 44])
@on_loop
async def test_no_other_spelling_leads_to_the_topic(key, name):
    (spec,) = [spec for spec in apis.TABLE if spec.key == key]
    version = {1: 12, 3: 9, 0: 12, 20: 5}.get(key, spec.served[1])  # by name, not by id
    async with Denying() as rig:
        await rig.prepare()
        before = describe_state(rig)[:-1]
        peer = rig.peer()
        peer.send(fill(spec.request, version, name, bytes(16)), version)
        await peer.wait()
        await settle()

        assert describe_state(rig) == (*before, [])
        if not peer.is_cut:
            assert SECRET.decode() not in bytes_of(peer.answer())
        for _, resource in rig.rules.asked:
            if resource.name != ORDERS:
                continue
            assert name in SPELLINGS, f"{name!r} was checked as the topic"


@pytest.mark.parametrize("version", [0, 1, 2, 3])
@pytest.mark.parametrize("key", [38, 39, 40, 41])
@on_loop
async def test_a_client_without_rights_gets_nothing_of_anothers_delegation_token(key, version):
    """It is logged in, and has even seen the HMAC."""
    (spec,) = [spec for spec in apis.TABLE if spec.key == key]
    async with Denying() as rig:
        tokens, alice = rig.broker.delegation_tokens, Principal("User", "alice")
        tokens.enable(lambda: b"the secret of the node", DelegationTokenLimits())
        token = tokens.make_token(alice, alice, (), lifetime_ms=-1, now_ms=rig.now_ms)
        await rig.commit(tokens.plan_create(token))
        before = describe_state(rig)[:-1]
        version = min(version, spec.served[1])
        request = fill(spec.request, version, "orders", bytes(16))
        if key == 38:
            request.owner_principal_type, request.owner_principal_name = alice
            request.renewers = []
            version = 3  # before it the owner is the client
        elif key != 41:
            request.hmac = tokens.hmac_of(token.token_id)
        peer = rig.peer(
            listener=ListenerSecurity("kafka-ssl", lambda: ("broker.example", 9093), tls=True)
        )
        peer.session.access.set_principal(Principal("User", "mallory"))
        response = await peer.request(request, version)

        assert describe_state(rig)[:-1] == before
        assert token.token_id not in bytes_of(response)
        assert repr(tokens.hmac_of(token.token_id)) not in bytes_of(response)
        assert (
            set(codes_of(response))
            == {
                38: {ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED},
                39: {ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH},
                40: {ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH},
                41: {ErrorCode.NONE},
            }[key]
        )


def test_open_apis_are_served():
    assert set(OPEN) <= {spec.key for spec in apis.TABLE}
