"""Consumers by hand, for tests of what they get."""

from __future__ import annotations

import struct
from typing import Any

from tests.gateway.pulsar.rig import Answer, Peer, Rig, section, send_frame, settle
from trilogue.wire.pulsar.pulsar_pb2 import CommandSubscribe, SingleMessageMetadata

EARLIEST, LATEST = CommandSubscribe.Earliest, CommandSubscribe.Latest
EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED = range(4)
ABSENT = (1 << 64) - 1


async def subscribe(
    peer: Peer,
    topic: str = "t",
    name: str = "s",
    *,
    kind: int = EXCLUSIVE,
    consumer_id: int = 1,
    permits: int = 1_000,
    answer: str = "success",
    **fields: Any,
) -> Any:
    """Make a consumer that begins with the first message and takes so many; gives the answer."""
    fields.setdefault("initialPosition", EARLIEST)
    found = await peer.request(
        "subscribe",
        answer,
        topic=topic,
        subscription=name,
        subType=kind,
        consumer_id=consumer_id,
        **fields,
    )
    if answer == "success" and permits:
        peer.send_command("flow", consumer_id=consumer_id, messagePermits=permits)
    return found


async def received(peer: Peer) -> list[Answer]:
    """All frames that come without time going by."""
    await settle()
    return [peer.next() for _ in range(peer.answered)]


async def messages(peer: Peer) -> list[Answer]:
    """The same, which must all be messages."""
    found = await received(peer)
    assert {"message"} >= {each.field for each in found}, found
    return found


async def offsets(peer: Peer) -> list[int]:
    """The entry ids of all messages that come."""
    return [each.command.message_id.entryId for each in await messages(peer)]


async def payloads(peer: Peer) -> list[bytes]:
    """The payloads of single messages that come."""
    return [payload(each.section) for each in await messages(peer)]


def payload(body: bytes) -> bytes:
    """What follows the metadata of a section with a checksum."""
    assert body[:2] == b"\x0e\x01", body[:10]
    (size,) = struct.unpack_from(">I", body, 6)
    return body[10 + size :]


async def fill(rig: Rig, *values: bytes, topic: str = "t", **metadata: Any) -> list[int]:
    """Send messages one by one from a client of their own; gives their entry ids."""
    peer = await rig.connected()
    await peer.producer(topic)
    found = []
    for number, value in enumerate(values):
        given = {f"metadata_{key}": each for key, each in metadata.items()}
        peer.send(1, number, value, **given)
        receipt = await peer.answer("send_receipt")
        found.append(receipt.message_id.entryId)
    peer.transport.close()
    return found


async def fill_batch(rig: Rig, *values: bytes, topic: str = "t", **metadata: Any) -> int:
    """Send one batch; gives its entry id."""
    peer = await rig.connected()
    await peer.producer(topic)
    body = b""
    for value in values:
        single = SingleMessageMetadata(payload_size=len(value)).SerializeToString()
        body += struct.pack(">I", len(single)) + single + value
    data = section(body, num_messages_in_batch=len(values), **metadata)
    peer.give(send_frame(1, 0, body=data, num_messages=len(values)))
    receipt = await peer.answer("send_receipt")
    peer.transport.close()
    return int(receipt.message_id.entryId)


def ids(rig: Rig, *entries: int, topic: str = "t", **fields: Any) -> list[dict[str, Any]]:
    """Message ids of a topic's first partition."""
    ledger = rig.broker.cluster.topic(rig.name(topic)).partitions[0].partition_id
    return [{"ledgerId": ledger, "entryId": entry % (1 << 64), **fields} for entry in entries]


def ack(peer: Peer, message_ids: list[dict[str, Any]], consumer_id: int = 1, **fields: Any) -> None:
    """ACK, individual by default."""
    fields.setdefault("ack_type", 0)
    peer.send_command("ack", consumer_id=consumer_id, message_id=message_ids, **fields)


def mark(rig: Rig, topic: str = "t", name: str = "s") -> int:
    """Below it everything of a durable subscription is acked."""
    partition = rig.broker.cluster.topic(rig.name(topic)).partitions[0]
    cursor = rig.broker.subscriptions.find_cursor(partition.partition_id, name)
    assert cursor is not None
    return cursor.mark
