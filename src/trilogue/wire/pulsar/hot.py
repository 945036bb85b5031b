"""The commands and metadata that pass once per message, read and written by hand.

SEND, SEND_RECEIPT, MESSAGE, ACK, FLOW and MessageMetadata; all else goes through the protobuf
runtime (frame.py). Compiled where there is a compiler, together with hot.pxd, which only adds
types. What is read agrees with the runtime about any bytes but these, which nobody sends: a group,
or an embedded message that comes twice, is refused here; of an enum's field the last number counts,
known or not; and what stands in fields that nobody asks for is passed over unread.

A frame is what follows totalSize:

    +--------------------+-------------+------------------------------------------------+
    | commandSize uint32 | BaseCommand | 0e02.. 0e01.. metadataSize | metadata | payload |
    +--------------------+-------------+------------------------------------------------+
                                        of SEND and MESSAGE only; the first two may be missing

uint64 fields are given as they are on the wire: Pulsar's -1 is 2**64 - 1.
"""

from __future__ import annotations

from typing import TypeAlias

import cython

from trilogue.wire.errors import WireError
from trilogue.wire.pulsar.shapes import (
    Ack,
    AckId,
    Delivery,
    Flow,
    Metadata,
    Receipt,
    Send,
)

__all__ = [
    "MAX_ACK_PARTS",
    "MAX_PROPERTIES",
    "Ack",
    "AckId",
    "Delivery",
    "Flow",
    "Metadata",
    "Receipt",
    "Send",
    "command_type",
    "message_head",
    "read_ack",
    "read_flow",
    "read_message",
    "read_metadata",
    "read_properties",
    "read_receipt",
    "read_send",
    "send_head",
    "send_receipt",
]

Int: TypeAlias = int  # the compiler would take a bare `int` for a Python object, and so on
View: TypeAlias = memoryview
Buffer: TypeAlias = bytes | bytearray | memoryview
Properties: TypeAlias = tuple[tuple[str, str], ...]
LongProperties: TypeAlias = tuple[tuple[str, int], ...]
Words: TypeAlias = tuple[int, ...]
Octets: TypeAlias = bytes

MAX_ACK_PARTS = 200_000
"""Message ids and words of ack sets in one ACK; clients send up to about a thousand ids."""

MAX_PROPERTIES = 100_000
"""Properties of one message; each takes some hundred bytes once it is read, and six on the wire."""

_tuple_new = tuple.__new__

if not cython.compiled:  # hot.pxd takes the compiled twins
    from trilogue.wire.fields import Fields, Room, size_of
    from trilogue.wire.memory import (
        bytes_of,
        signed32,
        signed64,
        truncated32,
        uint32_at,
        unsigned64,
    )


def _command_end(view: View) -> Int:
    """Where the section begins, which is where the command ends."""
    size = len(view)
    data = bytes_of(view)
    if size < 4:
        raise WireError(f"a frame of {size} bytes")
    command_size = uint32_at(data, 0)
    if command_size > size - 4:
        raise WireError(f"a command of {command_size} bytes in a frame of {size}")
    return 4 + command_size


def _command(view: View, kind: Int) -> Fields:
    """Read the fields of the one command that a frame must hold."""
    fields = Fields(view)
    fields.scan(4, _command_end(view))
    if fields.needed(1) != kind:
        raise WireError(f"command type {fields.needed(1)} where {kind} is expected")
    fields.into(kind)
    return fields


def command_type(frame: Buffer) -> Int:
    """Peek at the type of the command in a frame; 0, which is no type, where there is none."""
    view = frame if type(frame) is memoryview else memoryview(frame)
    try:
        end = _command_end(view)
        data = bytes_of(view)
        if end >= 6 and data[4] == 8 and 0 < data[5] < 128:
            return data[5]
        fields = Fields(view)
        fields.scan(4, end)
        kind = fields.number(1, 0)
    except WireError:
        return 0
    return kind if kind < 128 else 0


def read_send(frame: Buffer) -> Send:
    """Read SEND; the section itself is not looked at."""
    view = frame if type(frame) is memoryview else memoryview(frame)
    fields = _command(view, 6)
    values = (
        fields.needed(1),
        fields.needed(2),
        signed32(fields.number(3, 1)),
        fields.number(6, 0),
        fields.number(7, 0) != 0,
        fields.number(8, 0) != 0,
        fields.number(4, 0),
        fields.number(5, 0),
        _command_end(view),
    )
    send: Send = _tuple_new(Send, values)
    return send


def read_flow(frame: Buffer) -> Flow:
    """Read FLOW."""
    view = frame if type(frame) is memoryview else memoryview(frame)
    fields = _command(view, 11)
    values = (fields.needed(1), truncated32(fields.needed(2)))
    flow: Flow = _tuple_new(Flow, values)
    return flow


def read_ack(frame: Buffer) -> Ack:
    """Read ACK, at most MAX_ACK_PARTS of ids and words."""
    view = frame if type(frame) is memoryview else memoryview(frame)
    fields = _command(view, 10)
    ack_type = fields.needed(2)
    if ack_type > 1:
        raise WireError(f"ack type {ack_type}")
    request_id: object = fields.number(8, 0) if fields.has_number(8) else -1
    error = fields.number(4, 5)
    values = (
        fields.needed(1),
        ack_type,
        _ack_ids(fields),
        -1 if error > 4 else error,
        request_id,
        fields.number(6, 0),
        fields.number(7, 0),
        _long_properties(fields, 42) if fields.has_span(5) else (),
    )
    ack: Ack = _tuple_new(Ack, values)
    return ack


def _ack_ids(command: Fields) -> list[AckId]:
    command.pos = command.begin
    inner = Fields(command.view)
    found: list[AckId] = []
    budget = MAX_ACK_PARTS
    while True:
        tag = command.advance()
        if tag == 0:
            return found
        if tag != 26:
            continue
        inner.scan(command.at, command.at + command.size)
        words = _words(inner, 5, budget)
        budget -= 1 + len(words)
        if budget < 0:
            raise WireError(f"an ACK of more than {MAX_ACK_PARTS} ids and words")
        values = (
            inner.needed(1),
            inner.needed(2),
            signed32(inner.number(4, -1)),
            words,
            signed32(inner.number(6, 0)),
        )
        found.append(_tuple_new(AckId, values))


def _words(fields: Fields, number: Int, budget: Int) -> Words:
    """Read a repeated int64, packed or not, of at most `budget` + 1 numbers."""
    if not fields.has_number(number) and not fields.has_span(number):
        return ()
    fields.pos = fields.begin
    end = fields.end
    found: list[int] = []
    while len(found) <= budget:
        tag = fields.advance()
        if tag == 0:
            break
        if tag >> 3 != number:
            continue
        if tag & 7 == 0:
            found.append(signed64(fields.value))
        elif tag & 7 == 2:
            fields.pos = fields.at
            fields.end = fields.at + fields.size
            while fields.pos < fields.end and len(found) <= budget:
                found.append(signed64(fields.varint()))
            fields.end = end
    return tuple(found)


def _long_properties(command: Fields, wanted: Int) -> LongProperties:
    command.pos = command.begin
    inner = Fields(command.view)
    found: list[tuple[str, int]] = []
    while True:
        tag = command.advance()
        if tag == 0:
            return tuple(found)
        if tag == wanted:
            inner.scan(command.at, command.at + command.size)
            key = inner.text(1)
            if key is None:
                raise WireError("a property without its key")
            found.append((key, inner.needed(2)))


def read_properties(view: Buffer, number: Int = 4) -> Properties:
    """Read the properties of message metadata, in order, repeated ones too; `number` is the field.

    4 in MessageMetadata, 1 in SingleMessageMetadata. Text that is not UTF-8 gets replacement
    characters: nothing but names and values for people depends on it.
    """
    octets = view if type(view) is memoryview else memoryview(view)
    fields = Fields(octets)
    fields.begin = 0
    fields.end = len(octets)
    return properties_of(fields, number)


def properties_of(fields: Fields, number: Int) -> Properties:
    """Read the properties among fields that were scanned."""
    fields.pos = fields.begin
    inner = Fields(fields.view)
    found: list[tuple[str, str]] = []
    wanted = number << 3 | 2
    while True:
        tag = fields.advance()
        if tag == 0:
            return tuple(found)
        if tag == wanted:
            inner.scan(fields.at, fields.at + fields.size)
            key = inner.octets(1)
            value = inner.octets(2)
            if key is None or value is None:
                raise WireError("a property without its key or value")
            found.append((str(key, "utf-8", "replace"), str(value, "utf-8", "replace")))
            if len(found) > MAX_PROPERTIES:
                raise WireError(f"a message with more than {MAX_PROPERTIES} properties")


def read_metadata(view: Buffer) -> Metadata:
    """Read MessageMetadata; `view` is exactly it."""
    octets = view if type(view) is memoryview else memoryview(view)
    fields = Fields(octets)
    fields.scan(0, len(octets))
    name = fields.text(1)
    if name is None:
        raise WireError("metadata without a producer name")
    values = (
        name,
        fields.needed(2),
        fields.needed(3),
        fields.number(12, 0),
        truncated32(fields.number(8, 0)),
        truncated32(fields.number(9, 0)),
        signed32(fields.number(11, 1)),
        fields.has_number(11) != 0,
        fields.number(24, 0),
        fields.text(6),
        fields.number(17, 0) != 0,
        fields.number(30, 0) != 0,
        fields.octets(18),
        fields.number(25, 0) != 0,
        fields.text(26),
        signed32(fields.number(29, -1)),
        signed32(fields.number(27, -1)),
        signed32(fields.number(28, -1)),
        fields.has_number(22) != 0 or fields.has_number(23) != 0,
        fields.number(22, 0),
        fields.number(23, 0),
        signed32(fields.number(20, -1)),
        signed64(fields.number(19, 0)) if fields.has_number(19) else -1,
        fields.octets(16),
        fields.octets(32),
        fields.has_span(13) != 0,
        fields.text(5),
        fields.has_span(4) != 0,
    )
    metadata: Metadata = _tuple_new(Metadata, values)
    return metadata


def read_receipt(frame: Buffer) -> Receipt:
    """Read SEND_RECEIPT, as a client does."""
    view = frame if type(frame) is memoryview else memoryview(frame)
    fields = _command(view, 7)
    producer_id = fields.needed(1)
    sequence_id = fields.needed(2)
    highest = fields.number(4, 0)
    fields.into(3)
    values = (producer_id, sequence_id, highest, fields.needed(1), fields.needed(2))
    receipt: Receipt = _tuple_new(Receipt, values)
    return receipt


def read_message(frame: Buffer) -> Delivery:
    """Read MESSAGE, as a client does; the section itself is not looked at."""
    view = frame if type(frame) is memoryview else memoryview(frame)
    fields = _command(view, 9)
    consumer_id = fields.needed(1)
    redelivery_count = truncated32(fields.number(3, 0))
    epoch: object = fields.number(5, 0) if fields.has_number(5) else -1
    words = _words(fields, 4, MAX_ACK_PARTS)
    fields.into(2)
    values = (
        consumer_id,
        fields.needed(1),
        fields.needed(2),
        signed32(fields.number(3, -1)),
        signed32(fields.number(4, -1)),
        redelivery_count,
        words,
        epoch,
        _command_end(view),
    )
    delivery: Delivery = _tuple_new(Delivery, values)
    return delivery


# ---- Writing. Fields in the order of their numbers, as the runtime writes them.


def _head(room: Room, kind: Int, size: Int, section_size: Int) -> None:
    """Write what stands before the fields of a command of `size` bytes."""
    command_size = 3 + size_of(size) + size
    room.uint32(4 + command_size + section_size)
    room.uint32(command_size)
    room.byte(8)
    room.byte(kind)
    room.byte(kind << 3 | 2)
    room.varint(size)


def send_receipt(
    producer_id: Int, sequence_id: Int, highest_sequence_id: Int, ledger_id: Int, entry_id: Int
) -> Octets:
    """Write a whole frame that says where a message lies."""
    id_size = 2 + size_of(ledger_id) + size_of(entry_id)
    size = 5 + size_of(producer_id) + size_of(sequence_id) + id_size + size_of(highest_sequence_id)
    room = Room(128)
    _head(room, 7, size, 0)
    room.field(8, producer_id)
    room.field(16, sequence_id)
    room.field(26, id_size)
    room.field(8, ledger_id)
    room.field(16, entry_id)
    room.field(32, highest_sequence_id)
    return room.written()


def send_head(  # noqa: PLR0917 - once per message
    producer_id: Int,
    sequence_id: Int,
    num_messages: Int,
    highest_sequence_id: Int,
    is_chunk: Int,
    section_size: Int,
) -> Octets:
    """Write what precedes the section in SEND; a highest sequence id of 0 is left out."""
    size = 2 + size_of(producer_id) + size_of(sequence_id)
    if num_messages != 1:
        size += 1 + size_of(num_messages)
    if highest_sequence_id:
        size += 1 + size_of(highest_sequence_id)
    if is_chunk:
        size += 2
    room = Room(128)
    _head(room, 6, size, section_size)
    room.field(8, producer_id)
    room.field(16, sequence_id)
    if num_messages != 1:
        room.field(24, num_messages)
    if highest_sequence_id:
        room.field(48, highest_sequence_id)
    if is_chunk:
        room.field(56, 1)
    return room.written()


def message_head(  # noqa: PLR0917 - once per message
    consumer_id: Int,
    ledger_id: Int,
    entry_id: Int,
    partition: Int,
    redelivery_count: Int,
    ack_set: Words,
    consumer_epoch: object,
    section_size: Int,
    broker_entry: Octets = b"",
) -> Octets:
    """Write all of a MESSAGE that stands before its section, `broker_entry` (0e02 ...) included.

    A redelivery count of 0 and a consumer epoch of -1 are left out, as the real broker does; a
    partition of -1 is not.
    """
    index = unsigned64(partition)
    id_size = 3 + size_of(ledger_id) + size_of(entry_id) + size_of(index)
    size = 2 + size_of(consumer_id) + size_of(id_size) + id_size
    if redelivery_count:
        size += 1 + size_of(redelivery_count)
    for word in ack_set:
        size += 1 + size_of(unsigned64(word))
    epoch = 0
    if consumer_epoch != -1:
        epoch = consumer_epoch  # type: ignore[assignment]
        size += 1 + size_of(epoch)
    room = Room(128 + 11 * len(ack_set))
    _head(room, 9, size, len(broker_entry) + section_size)
    room.field(8, consumer_id)
    room.field(18, id_size)
    room.field(8, ledger_id)
    room.field(16, entry_id)
    room.field(24, index)
    if redelivery_count:
        room.field(24, redelivery_count)
    for word in ack_set:
        room.field(32, unsigned64(word))
    if consumer_epoch != -1:
        room.field(40, epoch)
    return room.written() + broker_entry if broker_entry else room.written()
