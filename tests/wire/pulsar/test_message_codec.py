"""The hand-written codec agrees with the protobuf runtime."""

from __future__ import annotations

import time
from pathlib import Path
from struct import pack
from types import ModuleType

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wire.pulsar.conftest import INSTALLED, PURE, Room
from tests.wire.pulsar.messages import NUMBERS, encoded, sized, tagged, varint
from trilogue.entry.pulsar import pulsar_entry
from trilogue.wire import fields
from trilogue.wire.errors import WireError
from trilogue.wire.pulsar import batch_reader as singles
from trilogue.wire.pulsar import message_codec as hot
from trilogue.wire.pulsar.frame import encode_command
from trilogue.wire.pulsar.pulsar_pb2 import (
    BaseCommand,
    CommandAck,
    CommandFlow,
    CommandMessage,
    CommandSend,
    CommandSendReceipt,
    MessageMetadata,
    SingleMessageMetadata,
)

ROOMS = (INSTALLED, PURE)
UINT64 = st.integers(0, 2**64 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
UINT32 = st.integers(0, 2**32 - 1)


def frame_of(kind: int, octets: bytes, rest: bytes = b"", *, type_last: bool = False) -> bytes:
    parts = [tagged(1, 0, varint(kind)), sized(kind, octets)]
    command = b"".join(reversed(parts) if type_last else parts)
    return pack(">I", len(command)) + command + rest


def runtime(kind: type, octets: bytes) -> object | None:
    """What the runtime reads, None where it refuses."""
    try:
        message = kind.FromString(octets)
    except DecodeError:
        return None
    return message if message.IsInitialized() else None


def check(read, expected: tuple | None, *arguments) -> None:
    for room in ROOMS:
        function = getattr(room.hot, read)
        if expected is None:
            with pytest.raises(WireError):
                function(*arguments)
        else:
            assert expected == function(*arguments)


def send_values(octets: bytes, section_at: int) -> tuple | None:
    m = runtime(CommandSend, octets)
    return m and (
        m.producer_id, m.sequence_id, m.num_messages, m.highest_sequence_id, m.is_chunk, m.marker,
        m.txnid_least_bits, m.txnid_most_bits, section_at,
    )  # fmt: skip


def ack_values(octets: bytes) -> tuple | None:
    m = runtime(CommandAck, octets)
    return m and (
        m.consumer_id, m.ack_type,
        [(i.ledgerId, i.entryId, i.batch_index, tuple(i.ack_set), i.batch_size)
         for i in m.message_id],
        m.validation_error if m.HasField("validation_error") else -1,
        m.request_id if m.HasField("request_id") else -1,
        m.txnid_least_bits, m.txnid_most_bits, tuple((p.key, p.value) for p in m.properties),
    )  # fmt: skip


def metadata_values(octets: bytes) -> dict | None:
    m = runtime(MessageMetadata, octets)
    if m is None:
        return None

    def there(name: str, absent: object = None) -> object:
        return getattr(m, name) if m.HasField(name) else absent

    return {
        "producer_name": m.producer_name,
        "sequence_id": m.sequence_id,
        "publish_time": m.publish_time,
        "event_time": m.event_time,
        "uncompressed_size": m.uncompressed_size,
        "num_messages": m.num_messages_in_batch,
        "is_batch": m.HasField("num_messages_in_batch"),
        "highest_sequence_id": m.highest_sequence_id,
        "partition_key": there("partition_key"),
        "key_is_b64": m.partition_key_b64_encoded,
        "null_key": m.null_partition_key,
        "ordering_key": there("ordering_key"),
        "null_value": m.null_value,
        "uuid": there("uuid"),
        "chunk_id": there("chunk_id", -1),
        "num_chunks": there("num_chunks_from_msg", -1),
        "total_chunk_size": there("total_chunk_msg_size", -1),
        "has_txn": m.HasField("txnid_least_bits") or m.HasField("txnid_most_bits"),
        "txn_least": m.txnid_least_bits,
        "txn_most": m.txnid_most_bits,
        "marker_type": there("marker_type", -1),
        "deliver_at_time": there("deliver_at_time", -1),
        "schema_version": there("schema_version"),
        "schema_id": there("schema_id"),
        "has_encryption": bool(m.encryption_keys),
        "replicated_from": there("replicated_from"),
        "has_properties": bool(m.properties),
    }


@given(octets=encoded(CommandSend.DESCRIPTOR), rest=st.binary(max_size=9), last=st.booleans())
def test_send_is_read_as_the_runtime_reads_it(octets: bytes, rest: bytes, last: bool):
    frame = frame_of(6, octets, rest, type_last=last)

    expected = send_values(octets, len(frame) - len(rest))
    check("read_send", expected, memoryview(frame))
    assert [head_of(each, frame) for each in ROOMS] == 2 * [expected and head_values(expected)]


def head_values(values: tuple) -> tuple:
    """What `SendHead` has of what `read_send` returns."""
    producer_id, sequence_id, _, highest, _, _, least, most, section_at = values
    return producer_id, sequence_id, highest, bool(least or most), section_at


def head_of(room: Room, frame: bytes) -> tuple | None:
    head = room.hot.SendHead()
    if not head.read(memoryview(frame)):
        return None
    return (head.producer_id, head.sequence_id, head.highest_sequence_id, head.is_in_transaction,
            head.section_at)  # fmt: skip


@given(octets=encoded(CommandFlow.DESCRIPTOR))
def test_flow_is_read_as_the_runtime_reads_it(octets: bytes):
    m = runtime(CommandFlow, octets)

    check("read_flow", m and (m.consumer_id, m.messagePermits), frame_of(11, octets))


@given(octets=encoded(CommandAck.DESCRIPTOR), packed=st.lists(INT64, max_size=3))
def test_ack_is_read_as_the_runtime_reads_it(octets: bytes, packed: list[int]):
    words = b"".join(varint(word & 2**64 - 1) for word in packed)
    octets += sized(3, tagged(1, 0, b"\1") + sized(5, words) + tagged(2, 0, b"\2"))

    check("read_ack", ack_values(octets), frame_of(10, octets))


@given(octets=encoded(CommandMessage.DESCRIPTOR), rest=st.binary(max_size=9))
def test_message_is_read_as_the_runtime_reads_it(octets: bytes, rest: bytes):
    frame = frame_of(9, octets, rest)
    m = runtime(CommandMessage, octets)

    expected = m and (
        m.consumer_id, m.message_id.ledgerId, m.message_id.entryId, m.message_id.partition,
        m.message_id.batch_index, m.redelivery_count, tuple(m.ack_set),
        m.consumer_epoch if m.HasField("consumer_epoch") else -1, len(frame) - len(rest),
    )  # fmt: skip
    check("read_message", expected, frame)


@given(octets=encoded(CommandSendReceipt.DESCRIPTOR))
def test_receipt_is_read_as_the_runtime_reads_it(octets: bytes):
    m = runtime(CommandSendReceipt, octets)
    if m is not None and not m.HasField("message_id"):
        m = None  # a receipt without a message id

    expected = m and (
        m.producer_id, m.sequence_id, m.highest_sequence_id,
        m.message_id.ledgerId, m.message_id.entryId,
    )  # fmt: skip
    check("read_receipt", expected, frame_of(7, octets))


@given(octets=encoded(MessageMetadata.DESCRIPTOR))
def test_metadata_is_read_as_the_runtime_reads_it(octets: bytes):
    expected = metadata_values(octets)
    for room in ROOMS:
        found = room.hot.read_metadata(octets)
        assert expected == {name: getattr(found, name) for name in expected}
        m = MessageMetadata.FromString(octets)
        assert tuple((p.key, p.value) for p in m.properties) == room.hot.read_properties(octets)
        if m.HasField("compression"):
            assert m.compression == found.compression


def test_a_compression_that_is_unknown_stays_a_number(room: Room):
    octets = MessageMetadata(producer_name="", sequence_id=0, publish_time=0).SerializeToString()

    assert room.hot.read_metadata(octets + b"\x40\x09").compression == 9


@given(NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS)
def test_receipt_is_written_as_the_runtime_writes_it(producer, sequence, highest, ledger, entry):
    command = BaseCommand(type=BaseCommand.SEND_RECEIPT)
    receipt = command.send_receipt
    receipt.producer_id, receipt.sequence_id = producer, sequence
    receipt.message_id.ledgerId, receipt.message_id.entryId = ledger, entry
    receipt.highest_sequence_id = highest

    for room in ROOMS:
        assert encode_command(command) == room.hot.encode_send_receipt(
            producer, sequence, highest, ledger, entry
        )


@given(
    UINT64, UINT64, st.integers(1, 2**31 - 1), UINT64, st.booleans(), st.integers(0, 2**22),
    st.just(()) | st.tuples(UINT64, UINT64),
)  # fmt: skip
def test_send_is_written_as_the_runtime_writes_it(  # noqa: PLR0917
    producer, sequence, count, highest, chunk, size, txn_id
):
    command = BaseCommand(type=BaseCommand.SEND)
    command.send.producer_id, command.send.sequence_id = producer, sequence
    if count != 1:
        command.send.num_messages = count
    if highest:
        command.send.highest_sequence_id = highest
    if chunk:
        command.send.is_chunk = True
    if txn_id:
        command.send.txnid_most_bits, command.send.txnid_least_bits = txn_id

    for room in ROOMS:
        head = room.hot.encode_send_head(producer, sequence, count, highest, chunk, size, txn_id)
        assert (
            pack(">I", len(encode_command(command)) - 4 + size) + encode_command(command)[4:]
            == head
        )


@given(
    UINT64, UINT64, UINT64, st.integers(-1, 2**31 - 1), UINT32, st.lists(INT64, max_size=40),
    st.one_of(st.just(-1), UINT64), st.integers(0, 2**22), st.binary(max_size=20),
)  # fmt: skip
def test_message_is_written_as_the_runtime_writes_it(  # noqa: PLR0917
    consumer, ledger, entry, partition, redelivered, words, epoch, size, broker_entry
):
    command = BaseCommand(type=BaseCommand.MESSAGE)
    message = command.message
    message.consumer_id = consumer
    message.message_id.ledgerId, message.message_id.entryId = ledger, entry
    message.message_id.partition = partition
    if redelivered:
        message.redelivery_count = redelivered
    message.ack_set.extend(words)
    if epoch != -1:
        message.consumer_epoch = epoch
    whole = encode_command(command)
    expected = pack(">I", len(whole) - 4 + len(broker_entry) + size) + whole[4:] + broker_entry

    for room in ROOMS:
        head = room.hot.encode_message_head(
            consumer, ledger, entry, partition, redelivered, tuple(words), epoch, size, broker_entry
        )
        assert expected == head


@given(kind=st.integers(2, 68), type_last=st.booleans())
def test_the_type_is_seen_wherever_it_stands(kind: int, type_last: bool):
    frame = frame_of(kind, b"", type_last=type_last)

    for room in ROOMS:
        assert kind == room.hot.read_command_type(frame)


@pytest.mark.parametrize(
    "frame", [b"", b"\0", b"\0\0\0\1", b"\0\0\0\0", b"\0\0\0\2\x10\6", b"\0\0\0\1\x08"]
)
def test_no_type_is_seen_where_there_is_none(room: Room, frame: bytes):
    assert room.hot.read_command_type(frame) == 0


READERS = ("read_send", "read_flow", "read_ack", "read_message", "read_receipt", "read_metadata",
           "read_properties")  # fmt: skip
WHOLE = {
    "read_send": (6, CommandSend(producer_id=1, sequence_id=2, num_messages=3)),
    "read_flow": (11, CommandFlow(consumer_id=1, messagePermits=1000)),
    "read_ack": (10, CommandAck(consumer_id=1, ack_type=0, message_id=[
        {"ledgerId": 1, "entryId": 300, "ack_set": [-1, 5]}])),
    "read_message": (9, CommandMessage(
        consumer_id=1, message_id={"ledgerId": 1, "entryId": 300}, ack_set=[-1, 5])),
    "read_receipt": (7, CommandSendReceipt(
        producer_id=1, sequence_id=2, message_id={"ledgerId": 1, "entryId": 300})),
}  # fmt: skip


@pytest.mark.parametrize("reader", WHOLE)
def test_every_cut_is_refused(room: Room, reader: str):
    kind, message = WHOLE[reader]
    octets = message.SerializeToString()
    read = getattr(room.hot, reader)
    whole = frame_of(kind, octets)
    read(whole)

    for size in range(len(whole)):
        with pytest.raises(WireError):
            read(whole[:size])
    for size in range(len(octets)):
        with pytest.raises(WireError):
            read(pack(">I", size) + whole[4 : 4 + size])


def outcome(read, octets: bytes) -> object:
    try:
        return read(octets)
    except WireError as error:
        return str(error)


@given(data=st.data())
@settings(max_examples=400)
def test_any_bytes_are_read_or_refused_by_both_twins_alike(data: st.DataObject):
    reader = data.draw(st.sampled_from(READERS))
    if reader in WHOLE and data.draw(st.booleans()):
        kind, message = WHOLE[reader]
        damaged = bytearray(frame_of(kind, message.SerializeToString()))
        for _ in range(data.draw(st.integers(1, 3))):
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
        octets = bytes(damaged)
    else:
        body = data.draw(st.binary(max_size=60))
        octets = pack(">I", data.draw(st.integers(0, len(body)))) + body

    reported = [outcome(getattr(room.hot, reader), octets) for room in ROOMS]

    assert reported[0] == reported[1]
    if reader == "read_send":
        expected = None if isinstance(reported[0], str) else head_values(reported[0])
        assert [head_of(room, octets) for room in ROOMS] == [expected, expected]


def test_a_frame_of_another_command_is_no_send(room: Room):
    send = CommandSend(producer_id=1, sequence_id=2).SerializeToString()

    assert head_of(room, frame_of(6, send)) == (1, 2, 0, False, 4 + len(frame_of(6, send)[4:]))
    assert head_of(room, frame_of(7, send)) is None


def test_malformed_send_is_refused(room: Room):
    send = CommandSend(producer_id=1, sequence_id=2).SerializeToString()
    twice = tagged(1, 0, b"\6") + sized(6, send) + sized(6, send)

    for octets in (
        pack(">I", len(twice)) + twice,
        frame_of(6, send + b"\x0b\x0c"),  # a group
        frame_of(6, send + b"\x00\x00"),  # field number 0
        frame_of(6, send + tagged(50, 0, b"\xff" * 10 + b"\1")),  # eleven bytes
        frame_of(6, send + b"\x80\x80\x80\x80\x80\x01\x00"),  # a tag of six
    ):
        with pytest.raises(WireError):
            room.hot.read_send(octets)


def lowered(monkeypatch: pytest.MonkeyPatch, module: ModuleType, limit: str) -> int:
    """A hundredth of a limit, set for this test: a frame at the limit takes seconds uncompiled."""
    value: int = getattr(module, limit) // 100
    monkeypatch.setattr(module, limit, value)
    return value


def test_an_ack_has_a_bounded_number_of_parts(room: Room, monkeypatch: pytest.MonkeyPatch):
    one = sized(3, b"\x08\1\x10\1")
    limit = lowered(monkeypatch, room.hot, "MAX_ACK_PARTS")
    head = b"\x08\1\x10\0"

    assert len(room.hot.read_ack(frame_of(10, head + one * limit)).ids) == limit
    with pytest.raises(WireError, match="more than"):
        room.hot.read_ack(frame_of(10, head + one * (limit + 1)))
    words = sized(3, b"\x08\1\x10\1" + sized(5, b"\1" * limit))
    with pytest.raises(WireError, match="more than"):
        room.hot.read_ack(frame_of(10, head + words))


@pytest.mark.parametrize("number", [5, 2**31, 2**64 - 1])
def test_a_number_that_its_enum_does_not_have_counts_as_absent(room: Room, number: int):
    ack = frame_of(10, b"\x08\1\x10\0" + tagged(4, 0, varint(number)))

    assert room.hot.read_ack(ack).validation_error == -1
    with pytest.raises(WireError):
        room.hot.read_ack(frame_of(10, b"\x08\1" + tagged(2, 0, varint(number))))


@pytest.mark.parametrize("one", [b"\x60\1", b"\xf8\xff\xff\xff\x0f\1", sized(4, b"\x0a\0\x12\0")])
def test_a_frame_of_tiny_fields_costs_a_moment(one: bytes):
    """5 MiB of them: what the largest frame may hold."""
    if hot.__file__.endswith(".py"):
        pytest.skip("uncompiled it takes seconds")
    octets = sized(1, b"p") + b"\x10\1\x18\1" + one * (5_000_000 // len(one))
    before = time.process_time()

    hot.read_metadata(octets)
    outcome(hot.read_properties, octets)

    assert time.process_time() - before < 30  # uncompiled code and a slow machine included


def test_a_message_has_a_bounded_number_of_properties(room: Room, monkeypatch: pytest.MonkeyPatch):
    one = sized(4, b"\x0a\0\x12\0")
    limit = lowered(monkeypatch, room.hot, "MAX_PROPERTIES")

    assert len(room.hot.read_properties(one * limit)) == limit
    with pytest.raises(WireError, match="properties"):
        room.hot.read_properties(one * (limit + 1))


def test_a_batch_has_a_bounded_number_of_properties(monkeypatch: pytest.MonkeyPatch):
    limit = lowered(monkeypatch, INSTALLED.singles, "MAX_PROPERTIES")
    octets = sized(1, b"\x0a\0\x12\0") * (limit * 9 // 100) + b"\x18\0"
    one = pack(">I", len(octets)) + octets

    assert len(INSTALLED.singles.BatchReader(one * 11, 11).read(99)) == 11
    with pytest.raises(WireError, match="properties"):
        INSTALLED.singles.BatchReader(one * 12, 12).read(99)


def test_text_that_is_not_utf8_is_refused(room: Room):
    octets = sized(1, b"\xff") + b"\x10\1\x18\1"

    with pytest.raises(WireError, match="UTF-8"):
        room.hot.read_metadata(octets)


@given(st.lists(encoded(SingleMessageMetadata.DESCRIPTOR), min_size=1, max_size=4), st.data())
def test_messages_of_a_batch_are_read_as_the_runtime_reads_them(parts: list[bytes], data):
    payload = b""
    expected = []
    for index, part in enumerate(parts):
        value = data.draw(st.binary(max_size=5))
        octets = part + tagged(3, 0, varint(len(value)))  # the last one counts
        payload += pack(">I", len(octets)) + octets + value
        m = SingleMessageMetadata.FromString(octets)
        if not m.compacted_out:
            expected.append((
                index,
                None if m.null_value else value,
                m.partition_key if m.HasField("partition_key") else None,
                m.partition_key_b64_encoded,
                m.null_partition_key,
                m.ordering_key if m.HasField("ordering_key") else None,
                m.event_time,
                m.sequence_id if m.HasField("sequence_id") else -1,
                tuple((p.key, p.value) for p in m.properties),
            ))  # fmt: skip

    for room in ROOMS:
        walker = room.singles.BatchReader(payload, len(parts))
        found = walker.read(1) + walker.read(99)
        assert expected == found
        assert walker.read(1) == []


@given(payload=st.binary(max_size=80), count=st.integers(0, 5))
def test_any_payload_is_walked_or_refused_by_both_twins_alike(payload: bytes, count: int):
    reported = [
        outcome(lambda p, r=room: r.singles.BatchReader(p, count).read(99), payload)
        for room in ROOMS
    ]

    assert reported[0] == reported[1]


def test_a_batch_ends_where_its_payload_does(room: Room):
    one = b"\0\0\0\2\x18\3abc"

    assert len(room.singles.BatchReader(one * 3, 3).read(9)) == 3
    for payload, count in ((one * 3, 2), (one * 3, 4), (one + b"\0", 1), (one[:-1], 1)):
        with pytest.raises(WireError):
            room.singles.BatchReader(payload, count).read(9)


def test_pure_twin_is_pure():
    assert all(module.__file__.endswith(".py") for module in (PURE.hot, PURE.fields, PURE.singles))
    assert PURE.hot.Fields is PURE.fields.Fields
    assert PURE.singles.Fields is PURE.fields.Fields


def test_compiled_modules_are_those_of_the_present_source():
    for module in (fields, hot, singles, pulsar_entry):
        built = Path(module.__file__)
        sources = [built.parent / f"{built.name.split('.')[0]}{kind}" for kind in (".py", ".pxd")]
        newest = max(path.stat().st_mtime for path in sources)

        assert built.suffix == ".py" or built.stat().st_mtime >= newest, "run `make native`"
