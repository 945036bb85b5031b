"""The bypass matrix, Pulsar: every command of the table, in every spelling of a denied topic."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest

from tests.gateway.kafka.rig import batch
from tests.gateway.loop import on_loop
from tests.gateway.pulsar.rig import Peer, Rig, settle
from tests.security.bypass import ORDERS, SECRET, NoAcls, describe_state
from trilogue.broker.access.audit import AuditLog
from trilogue.broker.access.authorizer import CLUSTER, Principal
from trilogue.gateway.pulsar.commands import TABLE
from trilogue.wire.pulsar.errors import ServerError
from trilogue.wire.pulsar.pulsar_pb2 import BaseCommand

SPELLINGS = ("orders", ORDERS, f"persistent://{ORDERS}", f"persistent://{ORDERS}-partition-0")
OTHERS = (
    "Orders",
    "orders/",
    "persistent://public/default/orders/",
    "persistent://public/default/%6frders",
    "non-persistent://public/default/orders",
    "persistent://public//orders",
    "persistent://public/default/../default/orders",
    "PERSISTENT://public/default/orders",
    "persistent://public/standalone/default/orders",
    "orders\0",
    "оrders",  # noqa: RUF001 - a Cyrillic o
)
REFUSED = {ServerError.AuthorizationError, ServerError.TopicNotFound, ServerError.MetadataError}
BY_TOPIC = {
    "partitionMetadata": {},
    "lookupTopic": {},
    "producer": {"producer_id": 1},
    "subscribe": {"subscription": "s", "subType": 0, "consumer_id": 1},
    "getSchema": {},
    "getOrCreateSchema": {"schema": {"name": "", "schema_data": b'"string"', "type": 1}},
}
LISTS = {
    "getTopicsOfNamespace": {"namespace": "public/default"},
    "watchTopicList": {
        "watcher_id": 1,
        "namespace": "public/default",
        "topics_pattern": "persistent://public/default/.*",
    },
}
WITHOUT_ATTACHMENT = {  # of a producer or consumer that this connection does not have
    "send": {"producer_id": 1, "sequence_id": 0},
    "close_producer": {"producer_id": 1},
    "flow": {"consumer_id": 1, "messagePermits": 1_000},
    "ack": {"consumer_id": 1, "ack_type": 0},
    "redeliverUnacknowledgedMessages": {"consumer_id": 1},
    "seek": {"consumer_id": 1},
    "getLastMessageId": {"consumer_id": 1},
    "consumerStats": {"consumer_id": 1},
    "unsubscribe": {"consumer_id": 1},
    "close_consumer": {"consumer_id": 1},
    "watchTopicListClose": {"watcher_id": 1},
    "newTxn": {},
    "addPartitionToTxn": {},
    "addSubscriptionToTxn": {},
    "endTxn": {},
    "tcClientConnectRequest": {"tc_id": 0},
}
IN_TRANSACTION = ("addPartitionToTxn", "addSubscriptionToTxn", "endTxn")
WORDS = {"produce": "producer", "consume": "consumer"}
OPEN = {"connect", "ping", "pong", "authResponse"}  # before the login, or about the connection


def test_every_command_is_in_the_matrix():
    known = {*BY_TOPIC, *LISTS, *WITHOUT_ATTACHMENT, *OPEN}
    assert {row.field for row in TABLE} <= known


class Denying(Rig):
    """A cluster with the secret topic, whose client may do nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.rules: Any = NoAcls()

    async def prepare(self, partitions: int) -> Peer:
        topic = self.topic(f"persistent://{ORDERS}", partitions)
        topic.partitions[0].append(memoryview(batch(SECRET)), now_ms=self.now_ms)
        await settle()
        return await self.connected()


def numbered(field: str, fields: dict[str, Any], peer: Peer) -> dict[str, Any]:
    """Return the fields with a request id, if the command has one."""
    names = BaseCommand.DESCRIPTOR.fields_by_name[field].message_type.fields_by_name
    return {**fields, "request_id": peer.number()} if "request_id" in names else fields


async def send(peer: Peer, field: str, fields: dict[str, Any]) -> bytes:
    """Send a command and return everything that comes back within a moment."""
    before = len(peer.transport.written)
    if field == "send":
        peer.send(1, 0)
    else:
        peer.send_command(field, **numbered(field, fields, peer))
    await settle()
    return bytes(peer.transport.written[before:])


def errors_in(answer: bytes) -> set[int]:
    """Return the error codes of the commands in an answer."""
    found: set[int] = set()
    at = 0
    while at < len(answer):
        total, size = struct.unpack_from(">II", answer, at)
        command = BaseCommand.FromString(answer[at + 8 : at + 8 + size])
        for _, value in command.ListFields():
            if hasattr(value, "ListFields"):
                names = [name.name for name, _ in value.ListFields()]
                found |= {getattr(value, name) for name in names if name in {"error", "error_code"}}
        at += 4 + total
    return found


@pytest.mark.parametrize("partitions", [0, 2])
@pytest.mark.parametrize("name", SPELLINGS)
@pytest.mark.parametrize("field", BY_TOPIC)
@on_loop
async def test_a_command_without_rights_gets_and_changes_nothing(field, name, partitions):
    async with Denying() as rig:
        peer = await rig.prepare(partitions)
        before = describe_state(rig)[:-1]
        answer = await send(peer, field, {"topic": name, **BY_TOPIC[field]})

        assert describe_state(rig) == (*before, [])
        assert SECRET not in answer
        assert peer.is_cut or errors_in(answer) & REFUSED, answer
        assert {resource.name for _, resource in rig.rules.asked} <= {ORDERS, CLUSTER.name}
        # Nor did the connection get hold of a producer or a consumer.
        for later in ("send", "flow", "seek", "getLastMessageId"):
            if not peer.is_cut:
                more = await send(peer, later, WITHOUT_ATTACHMENT[later])
                assert SECRET not in more
        assert describe_state(rig) == (*before, [])


@pytest.mark.parametrize("field", BY_TOPIC)
@on_loop
async def test_each_refusal_is_one_line_of_the_audit_log(field):
    async with Denying() as rig:
        await rig.prepare(0)
        lines: list[dict[str, object]] = []
        rig.gateway.audit = AuditLog(lines.append, lambda: rig.now_ms)
        peer = await rig.connected()
        await send(peer, field, {"topic": "orders", **BY_TOPIC[field]})

        assert [line["event"] for line in lines] == ["refused"], lines
        assert SECRET.decode() not in repr(lines)


@pytest.mark.parametrize("field", LISTS)
@on_loop
async def test_a_list_that_hides_topics_refuses_nothing(field):
    async with Denying() as rig:
        await rig.prepare(0)
        lines: list[dict[str, object]] = []
        rig.gateway.audit = AuditLog(lines.append, lambda: rig.now_ms)
        await send(await rig.connected(), field, LISTS[field])

        assert not lines


@pytest.mark.parametrize("spelling", ["{}", "persistent://public/default/{}-partition-0"])
@pytest.mark.parametrize("partitions", [0, 2])
@pytest.mark.parametrize("field", BY_TOPIC)
@on_loop
async def test_no_answer_reveals_whether_a_topic_exists(field, partitions, spelling):
    async with Denying() as rig:
        answers = []
        await rig.prepare(partitions)
        for name in ("orders", "absent"):
            peer = await rig.connected()
            topic = spelling.format(name)
            answer = await send(peer, field, {"topic": topic, **BY_TOPIC[field]})
            answers.append((peer.is_cut, answer.replace(name.encode(), b"absent")))

        assert answers[0] == answers[1]


@pytest.mark.parametrize("field", LISTS)
@on_loop
async def test_lists_hide_topics_without_permission(field):
    async with Denying() as rig:
        peer = await rig.prepare(0)
        answer = await send(peer, field, LISTS[field])

        assert b"orders" not in answer


@pytest.mark.parametrize("field", WITHOUT_ATTACHMENT)
@on_loop
async def test_commands_about_attachments_need_one(field):
    async with Denying() as rig:
        peer = await rig.prepare(0)
        before = describe_state(rig)[:-1]
        answer = await send(peer, field, WITHOUT_ATTACHMENT[field])

        assert SECRET not in answer
        assert b"orders" not in answer
        assert describe_state(rig) == (*before, [])


@pytest.mark.parametrize("name", [*SPELLINGS, *OTHERS])
@pytest.mark.parametrize("field", IN_TRANSACTION)
@on_loop
async def test_no_transaction_is_used_without_rights(field, name):
    """The denied client knows the TxnID of another one; neither it nor its own one helps."""
    async with Denying() as rig:
        owner, peer = await rig.prepare(0), await rig.connected()
        rig.rules.is_open = True
        owner.connection.access.set_principal(Principal("User", "owner"))
        words = {"field": "newTxn", "answer": "newTxnResponse", "txn_ttl_seconds": 60_000}
        txns = [await each.request(**words) for each in (owner, peer)]
        rig.rules.is_open = False
        before = describe_state(rig)[:-1]
        for txn in txns:
            ids = {
                "txnid_most_bits": txn.txnid_most_bits,
                "txnid_least_bits": txn.txnid_least_bits,
            }
            if field == "endTxn" and txn is txns[1]:
                continue  # it is its own
            topic = {"addPartitionToTxn": {"partitions": [name]}, "endTxn": {"txn_action": 1}}
            subscription = {"subscription": [{"topic": name, "subscription": "s"}]}
            answer = await send(peer, field, {**topic.get(field, subscription), **ids})

            assert errors_in(answer), answer
            assert describe_state(rig) == (*before, [])


@pytest.mark.parametrize("field", IN_TRANSACTION)
@on_loop
async def test_no_answer_reveals_whether_a_transaction_exists(field):
    """TxnIDs count up: those of other clients, of Kafka's too, are answered as free ones."""
    async with Denying() as rig:
        owner, peer = await rig.prepare(0), await rig.connected()
        rig.rules.is_open = True
        owner.connection.access.set_principal(Principal("User", "owner"))
        words = {"field": "newTxn", "answer": "newTxnResponse", "txn_ttl_seconds": 60_000}
        begun = await owner.request(**words)
        rig.broker.transactions.create("billing-of-orders", 7_001, 60_000)
        await settle()
        rig.rules.is_open = False
        more = {"endTxn": {"txn_action": 1}}.get(field, {})
        answers = []
        for least in (begun.txnid_least_bits, 7_001, 7_002):
            ids = {"txnid_most_bits": begun.txnid_most_bits, "txnid_least_bits": least}
            found = await peer.request(field, f"{field}Response", **more, **ids)
            answers.append((found.error, found.message.replace(str(least), "N")))

        assert answers == [answers[-1]] * 3
        assert answers[-1][0] == ServerError.TransactionNotFound


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("field", BY_TOPIC)
@on_loop
async def test_no_other_spelling_leads_to_the_topic(field, name):
    async with Denying() as rig:
        peer = await rig.prepare(0)
        before = describe_state(rig)[:-1]
        answer = await send(peer, field, {"topic": name, **BY_TOPIC[field]})

        assert describe_state(rig) == (*before, [])
        assert SECRET not in answer
        assert peer.is_cut or errors_in(answer), answer


@pytest.mark.parametrize("verb", ["produce", "consume"])
@on_loop
async def test_revoked_permission_closes_producers_and_consumers(verb):
    async with Denying() as rig:
        rig.rules.is_open = True
        peer = await rig.prepare(0)
        if verb == "produce":
            await peer.producer("orders")
        else:
            fields = BY_TOPIC["subscribe"] | {"initialPosition": 1}
            await peer.request("subscribe", "success", topic="orders", **fields)
        rig.rules.is_open = False
        await asyncio.sleep(1)
        before = describe_state(rig)[:-1]
        command = "send" if verb == "produce" else "flow"
        assert [peer.next().field for _ in range(peer.answered)][-1:] == [f"close_{WORDS[verb]}"]
        answer = await send(peer, command, WITHOUT_ATTACHMENT[command])

        assert SECRET not in answer
        assert describe_state(rig)[2] == before[2]
