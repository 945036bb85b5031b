"""What does a Pulsar message cost to read, to store and to send, compiled, uncompiled, by protobuf?

    python -m benchmarks.pulsar_hot [--json FILE]

CPU time of this process, the smallest of some rounds: microseconds a call, or a message where the
row is marked. The third column is the official runtime doing the same, where it can.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from tests.pure import load_pure

from benchmarks.entry_walk import seconds_per_call
from trilogue.entry.pulsar import pulsar_entry
from trilogue.entry.pulsar.pulsar_batch import PulsarMessage, build_batch, build_single
from trilogue.wire.pulsar import batch_reader as singles
from trilogue.wire.pulsar import message_codec as hot
from trilogue.wire.pulsar.frame import encode_command
from trilogue.wire.pulsar.pulsar_pb2 import BaseCommand, MessageMetadata

MESSAGES = 1_000
SEND = BaseCommand(type=BaseCommand.SEND, send={"producer_id": 3, "sequence_id": 123_456})
FLOW = BaseCommand(type=BaseCommand.FLOW, flow={"consumer_id": 3, "messagePermits": 500})
ACK = BaseCommand(
    type=BaseCommand.ACK,
    ack={"consumer_id": 3, "ack_type": 0, "message_id": [{"ledgerId": 7, "entryId": 123_456}]},
)
RECEIPT = BaseCommand(
    type=BaseCommand.SEND_RECEIPT,
    send_receipt={
        "producer_id": 3, "sequence_id": 123_456, "highest_sequence_id": 0,
        "message_id": {"ledgerId": 7, "entryId": 123_456},
    },
)  # fmt: skip


class Room(NamedTuple):
    """The modules as installed, or their twins."""

    hot: ModuleType
    singles: ModuleType
    entry: ModuleType


def rooms() -> tuple[Room, Room]:
    """Both."""
    beneath = {"trilogue__wire__fields": load_pure("trilogue.wire.fields")}
    beneath["trilogue__wire__pulsar__message_codec"] = load_pure(
        "trilogue.wire.pulsar.message_codec", **beneath
    )
    twins = [load_pure(name, **beneath) for name in (
        "trilogue.wire.pulsar.batch_reader", "trilogue.entry.pulsar.pulsar_entry")]  # fmt: skip
    pure = Room(beneath["trilogue__wire__pulsar__message_codec"], *twins)
    return Room(hot, singles, pulsar_entry), pure


def frame(command: BaseCommand) -> memoryview:
    """What follows totalSize."""
    return memoryview(encode_command(command))[4:]


def metadata() -> MessageMetadata:
    """The metadata of a Java producer's message."""
    return MessageMetadata(
        producer_name="standalone-0-1", sequence_id=4, publish_time=1_700_000_000_000,
        uncompressed_size=1024,
    )  # fmt: skip


def cases() -> dict[str, tuple[Callable[[Room], object], Callable[[], object] | None, int]]:
    """Name: what a room does, what the runtime does, how many messages that is."""
    send, flow, ack = frame(SEND), frame(FLOW), frame(ACK)
    encoded = metadata().SerializeToString()
    nothing = PulsarMessage(0, b"x" * 1024, None, False, False, None, 0, -1, ())
    section = memoryview(build_single(nothing, metadata()))
    messages = [nothing._replace(value=b"x" * 100, partition_key=f"{i:08d}") for i in range(1000)]
    batch = build_batch(messages, metadata())
    payload = batch[10 + int.from_bytes(batch[6:10], "big") :]
    return {
        "read SEND": (
            lambda room: room.hot.read_send(send),
            lambda: BaseCommand.FromString(send[4:]).send.sequence_id, 1),
        "read FLOW": (
            lambda room: room.hot.read_flow(flow),
            lambda: BaseCommand.FromString(flow[4:]).flow.messagePermits, 1),
        "read ACK": (
            lambda room: room.hot.read_ack(ack),
            lambda: BaseCommand.FromString(ack[4:]).ack.message_id[0].entryId, 1),
        "read MessageMetadata": (
            lambda room: room.hot.read_metadata(encoded),
            lambda: MessageMetadata.FromString(encoded).producer_name, 1),
        "write SEND_RECEIPT": (
            lambda room: room.hot.encode_send_receipt(3, 123_456, 0, 7, 123_456),
            lambda: encode_command(RECEIPT), 1),
        "write the head of MESSAGE": (
            lambda room: room.hot.encode_message_head(3, 7, 123_456, -1, 0, (), -1, 1100), None, 1),
        "make an entry of 1 KiB": (
            lambda room: room.entry.build_entry(section, broker_ms=1), None, 1),
        "read a batch of 1,000, a message": (
            lambda room: room.singles.BatchReader(payload, MESSAGES).read(MESSAGES),
            None, MESSAGES),
    }  # fmt: skip


def main() -> None:
    """Print a table; keep it as JSON where that is wanted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    wanted = parser.parse_args().json
    installed, pure = rooms()
    found = {}
    print(f"{'microseconds':<34}{'installed':>10}{'pure':>10}{'runtime':>10}")
    for name, (work, runtime, count) in cases().items():
        calls = [lambda w=work: w(installed), lambda w=work: w(pure), runtime]
        costs = [seconds_per_call(call)[0] / count * 1e6 if call else None for call in calls]
        found[name] = dict(zip(("installed", "pure", "runtime"), costs, strict=True))
        shown = "".join(f"{cost:>10.2f}" if cost else f"{'':>10}" for cost in costs)
        print(f"{name:<34}{shown}")
    if wanted:
        wanted.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
