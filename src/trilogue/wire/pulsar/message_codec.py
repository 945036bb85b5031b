"""The commands and metadata that pass once per message, parsed and encoded by hand.

SEND, SEND_RECEIPT, MESSAGE, ACK, FLOW and MessageMetadata; all other commands go through the
protobuf runtime (frame.py). Compiled where there is a compiler, together with message_codec.pxd,
which only adds types. The parsers agree with the runtime about any bytes but these, which no known
client sends: a group and an embedded message that comes twice are refused; of an enum's field the
last number counts, known or not; and fields that are not used are skipped without validation.

A frame is what follows totalSize:

    +--------------------+-------------+------------------------------------------------+
    | commandSize uint32 | BaseCommand | 0e02.. 0e01.. metadataSize | metadata | payload |
    +--------------------+-------------+------------------------------------------------+
                                        of SEND and MESSAGE only; the first two may be missing

uint64 fields are given as they are on the wire: Pulsar's -1 is 2**64 - 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import cython

from trilogue.wire.errors import WireError
from trilogue.wire.pulsar.message_types import (
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
    "SendHead",
    "encode_message_head",
    "encode_messages",
    "encode_send_head",
    "encode_send_receipt",
    "read_ack",
    "read_command_type",
    "read_flow",
    "read_message",
    "read_metadata",
    "read_properties",
    "read_receipt",
    "read_send",
]

Int: TypeAlias = int  # the compiler would take a bare `int` for a Python object, and so on
View: TypeAlias = memoryview
Bool: TypeAlias = bool
Buffer: TypeAlias = bytes | bytearray | memoryview
Properties: TypeAlias = tuple[tuple[str, str], ...]
LongProperties: TypeAlias = tuple[tuple[str, int], ...]
Words: TypeAlias = tuple[int, ...]
Octets: TypeAlias = bytes

MAX_ACK_PARTS = 100_000
"""Message ids and words of ack sets in one ACK, which take 40 ms of CPU to read; clients send up to
about a thousand ids."""

MAX_PROPERTIES = 100_000
"""Properties of one message; each takes some hundred bytes of memory, and six on the wire."""

_tuple_new = tuple.__new__

# message_codec.pxd declares all of these as C variables.
_VARINT = 0  # wire types
_BYTES = 2
_WIRE_TYPE_MASK = 7  # of a tag: field number << 3 | wire type
_NUMBER_SHIFT = 3
_MAX_ACK_TYPE = 1  # 0 individual, 1 cumulative
_VALIDATION_ERRORS = 5

# Types of commands (BaseCommand.Type), which are also the fields of their messages.
_SEND = 6
_SEND_RECEIPT = 7
_MESSAGE = 9
_ACK = 10
_FLOW = 11

# Field numbers of the messages that are read (PulsarApi.proto).
_BASE_TYPE = 1
_SEND_PRODUCER_ID = 1
_SEND_SEQUENCE_ID = 2
_SEND_NUM_MESSAGES = 3
_SEND_TXN_LEAST = 4
_SEND_TXN_MOST = 5
_SEND_HIGHEST_SEQUENCE_ID = 6
_SEND_IS_CHUNK = 7
_SEND_MARKER = 8
_RECEIPT_PRODUCER_ID = 1
_RECEIPT_SEQUENCE_ID = 2
_RECEIPT_MESSAGE_ID = 3
_RECEIPT_HIGHEST_SEQUENCE_ID = 4
_MESSAGE_CONSUMER_ID = 1
_MESSAGE_MESSAGE_ID = 2
_MESSAGE_REDELIVERY_COUNT = 3
_MESSAGE_ACK_SET = 4
_MESSAGE_CONSUMER_EPOCH = 5
_ACK_CONSUMER_ID = 1
_ACK_TYPE = 2
_ACK_MESSAGE_ID = 3
_ACK_VALIDATION_ERROR = 4
_ACK_PROPERTIES = 5
_ACK_TXN_LEAST = 6
_ACK_TXN_MOST = 7
_ACK_REQUEST_ID = 8
_FLOW_CONSUMER_ID = 1
_FLOW_PERMITS = 2
_ID_LEDGER = 1
_ID_ENTRY = 2
_ID_PARTITION = 3
_ID_BATCH_INDEX = 4
_ID_ACK_SET = 5
_ID_BATCH_SIZE = 6
_KEY = 1
_VALUE = 2

# Tags of the fields that are written, and of repeated ones that are read.
_TAG_BASE_TYPE = _BASE_TYPE << _NUMBER_SHIFT
_TAG_SEND_PRODUCER_ID = _SEND_PRODUCER_ID << _NUMBER_SHIFT
_TAG_SEND_SEQUENCE_ID = _SEND_SEQUENCE_ID << _NUMBER_SHIFT
_TAG_SEND_NUM_MESSAGES = _SEND_NUM_MESSAGES << _NUMBER_SHIFT
_TAG_SEND_TXN_LEAST = _SEND_TXN_LEAST << _NUMBER_SHIFT
_TAG_SEND_TXN_MOST = _SEND_TXN_MOST << _NUMBER_SHIFT
_TAG_SEND_HIGHEST_SEQUENCE_ID = _SEND_HIGHEST_SEQUENCE_ID << _NUMBER_SHIFT
_TAG_SEND_IS_CHUNK = _SEND_IS_CHUNK << _NUMBER_SHIFT
_TAG_RECEIPT_PRODUCER_ID = _RECEIPT_PRODUCER_ID << _NUMBER_SHIFT
_TAG_RECEIPT_SEQUENCE_ID = _RECEIPT_SEQUENCE_ID << _NUMBER_SHIFT
_TAG_RECEIPT_MESSAGE_ID = _RECEIPT_MESSAGE_ID << _NUMBER_SHIFT | _BYTES
_TAG_RECEIPT_HIGHEST_SEQUENCE_ID = _RECEIPT_HIGHEST_SEQUENCE_ID << _NUMBER_SHIFT
_TAG_MESSAGE_CONSUMER_ID = _MESSAGE_CONSUMER_ID << _NUMBER_SHIFT
_TAG_MESSAGE_MESSAGE_ID = _MESSAGE_MESSAGE_ID << _NUMBER_SHIFT | _BYTES
_TAG_MESSAGE_REDELIVERY_COUNT = _MESSAGE_REDELIVERY_COUNT << _NUMBER_SHIFT
_TAG_MESSAGE_ACK_SET = _MESSAGE_ACK_SET << _NUMBER_SHIFT
_TAG_MESSAGE_CONSUMER_EPOCH = _MESSAGE_CONSUMER_EPOCH << _NUMBER_SHIFT
_TAG_ACK_MESSAGE_ID = _ACK_MESSAGE_ID << _NUMBER_SHIFT | _BYTES
_TAG_ACK_PROPERTIES = _ACK_PROPERTIES << _NUMBER_SHIFT | _BYTES
_TAG_ID_LEDGER = _ID_LEDGER << _NUMBER_SHIFT
_TAG_ID_ENTRY = _ID_ENTRY << _NUMBER_SHIFT
_TAG_ID_PARTITION = _ID_PARTITION << _NUMBER_SHIFT

if not cython.compiled:  # message_codec.pxd takes the compiled versions
    from trilogue.wire.fields import Fields, Room, size_of
    from trilogue.wire.memory import (
        bytes_of,
        signed32,
        signed64,
        truncated32,
        uint32_at,
        unsigned64,
    )
    from trilogue.wire.pulsar.metadata_fields import (
        META_CHUNK_ID,
        META_COMPRESSION,
        META_DELIVER_AT_TIME,
        META_ENCRYPTION_KEYS,
        META_EVENT_TIME,
        META_HIGHEST_SEQUENCE_ID,
        META_KEY_IS_B64,
        META_MARKER_TYPE,
        META_NULL_KEY,
        META_NULL_VALUE,
        META_NUM_CHUNKS,
        META_NUM_MESSAGES,
        META_ORDERING_KEY,
        META_PARTITION_KEY,
        META_PRODUCER_NAME,
        META_PROPERTIES,
        META_PUBLISH_TIME,
        META_REPLICATED_FROM,
        META_SCHEMA_ID,
        META_SCHEMA_VERSION,
        META_SEQUENCE_ID,
        META_TOTAL_CHUNK_SIZE,
        META_TXN_LEAST,
        META_TXN_MOST,
        META_UNCOMPRESSED_SIZE,
        META_UUID,
    )


def _command_end(view: View) -> Int:
    """Return the position where the command ends and the section begins."""
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
    if fields.needed(_BASE_TYPE) != kind:
        raise WireError(f"command type {fields.needed(_BASE_TYPE)} where {kind} is expected")
    fields.into(kind)
    return fields


def read_command_type(frame: Buffer) -> Int:
    """Return the type of a frame's command without parsing it; 0, no type, if it has none."""
    view = frame if type(frame) is memoryview else memoryview(frame)
    try:
        end = _command_end(view)
        data = bytes_of(view)
        if end >= 6 and data[4] == _TAG_BASE_TYPE and 0 < data[5] < 128:
            return data[5]
        fields = Fields(view)
        fields.scan(4, end)
        kind = fields.number(_BASE_TYPE, 0)
    except WireError:
        return 0
    return kind if kind < 128 else 0


def read_send(frame: Buffer) -> Send:
    """Read SEND, without its section."""
    view = frame if type(frame) is memoryview else memoryview(frame)
    fields = _command(view, _SEND)
    values = (
        fields.needed(_SEND_PRODUCER_ID),
        fields.needed(_SEND_SEQUENCE_ID),
        signed32(fields.number(_SEND_NUM_MESSAGES, 1)),
        fields.number(_SEND_HIGHEST_SEQUENCE_ID, 0),
        fields.number(_SEND_IS_CHUNK, 0) != 0,
        fields.number(_SEND_MARKER, 0) != 0,
        fields.number(_SEND_TXN_LEAST, 0),
        fields.number(_SEND_TXN_MOST, 0),
        _command_end(view),
    )
    send: Send = _tuple_new(Send, values)
    return send


class SendHead:
    """The SEND that was read last, without its section; one object for all of a connection."""

    __slots__ = (
        "highest_sequence_id",
        "is_in_transaction",
        "producer_id",
        "section_at",
        "sequence_id",
    )

    def read(self, frame: View) -> Bool:
        """Whether a frame is a SEND that can be read; if not, the fields mean nothing."""
        try:
            end = self.section_at = _command_end(frame)
            fields = Fields(frame)
            fields.scan(4, end)
            if fields.number(_BASE_TYPE, 0) != _SEND:
                return False
            fields.into(_SEND)
            self.producer_id = fields.needed(_SEND_PRODUCER_ID)
            self.sequence_id = fields.needed(_SEND_SEQUENCE_ID)
        except WireError:
            return False
        self.highest_sequence_id = fields.number(_SEND_HIGHEST_SEQUENCE_ID, 0)
        least = fields.number(_SEND_TXN_LEAST, 0)
        self.is_in_transaction = least != 0 or fields.number(_SEND_TXN_MOST, 0) != 0
        return True


def read_flow(frame: Buffer) -> Flow:
    """Read FLOW."""
    view = frame if type(frame) is memoryview else memoryview(frame)
    fields = _command(view, _FLOW)
    values = (fields.needed(_FLOW_CONSUMER_ID), truncated32(fields.needed(_FLOW_PERMITS)))
    flow: Flow = _tuple_new(Flow, values)
    return flow


def read_ack(frame: Buffer) -> Ack:
    """Read ACK, at most MAX_ACK_PARTS of ids and words."""
    view = frame if type(frame) is memoryview else memoryview(frame)
    fields = _command(view, _ACK)
    ack_type = fields.needed(_ACK_TYPE)
    if ack_type > _MAX_ACK_TYPE:
        raise WireError(f"ack type {ack_type}")
    request_id: object = -1
    if fields.has_number(_ACK_REQUEST_ID):
        request_id = fields.number(_ACK_REQUEST_ID, 0)
    error = fields.number(_ACK_VALIDATION_ERROR, _VALIDATION_ERRORS)
    values = (
        fields.needed(_ACK_CONSUMER_ID),
        ack_type,
        _ack_ids(fields),
        -1 if error >= _VALIDATION_ERRORS else error,
        request_id,
        fields.number(_ACK_TXN_LEAST, 0),
        fields.number(_ACK_TXN_MOST, 0),
        _long_properties(fields) if fields.has_span(_ACK_PROPERTIES) else (),
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
        if tag != _TAG_ACK_MESSAGE_ID:
            continue
        inner.scan(command.at, command.at + command.size)
        words = _words(inner, _ID_ACK_SET, budget)
        budget -= 1 + len(words)
        if budget < 0:
            raise WireError(f"an ACK of more than {MAX_ACK_PARTS} ids and words")
        values = (
            inner.needed(_ID_LEDGER),
            inner.needed(_ID_ENTRY),
            signed32(inner.number(_ID_BATCH_INDEX, -1)),
            words,
            signed32(inner.number(_ID_BATCH_SIZE, 0)),
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
        if tag >> _NUMBER_SHIFT != number:
            continue
        if tag & _WIRE_TYPE_MASK == _VARINT:
            found.append(signed64(fields.value))
        elif tag & _WIRE_TYPE_MASK == _BYTES:
            fields.pos = fields.at
            fields.end = fields.at + fields.size
            while fields.pos < fields.end and len(found) <= budget:
                found.append(signed64(fields.varint()))
            fields.end = end
    return tuple(found)


def _long_properties(command: Fields) -> LongProperties:
    command.pos = command.begin
    inner = Fields(command.view)
    found: list[tuple[str, int]] = []
    while True:
        tag = command.advance()
        if tag == 0:
            return tuple(found)
        if tag == _TAG_ACK_PROPERTIES:
            inner.scan(command.at, command.at + command.size)
            key = inner.text(_KEY)
            if key is None:
                raise WireError("a property without its key")
            found.append((key, inner.needed(_VALUE)))


def read_properties(view: Buffer, number: Int = META_PROPERTIES) -> Properties:
    """Read the properties of message metadata, in order, repeated ones too; `number` is the field.

    4 in MessageMetadata, 1 in SingleMessageMetadata. Text that is not UTF-8 gets replacement
    characters: the broker only passes it on.
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
    wanted = number << _NUMBER_SHIFT | _BYTES
    while True:
        tag = fields.advance()
        if tag == 0:
            return tuple(found)
        if tag == wanted:
            inner.scan(fields.at, fields.at + fields.size)
            key = inner.octets(_KEY)
            value = inner.octets(_VALUE)
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
    name = fields.text(META_PRODUCER_NAME)
    if name is None:
        raise WireError("metadata without a producer name")
    values = (
        name,
        fields.needed(META_SEQUENCE_ID),
        fields.needed(META_PUBLISH_TIME),
        fields.number(META_EVENT_TIME, 0),
        truncated32(fields.number(META_COMPRESSION, 0)),
        truncated32(fields.number(META_UNCOMPRESSED_SIZE, 0)),
        signed32(fields.number(META_NUM_MESSAGES, 1)),
        fields.has_number(META_NUM_MESSAGES) != 0,
        fields.number(META_HIGHEST_SEQUENCE_ID, 0),
        fields.text(META_PARTITION_KEY),
        fields.number(META_KEY_IS_B64, 0) != 0,
        fields.number(META_NULL_KEY, 0) != 0,
        fields.octets(META_ORDERING_KEY),
        fields.number(META_NULL_VALUE, 0) != 0,
        fields.text(META_UUID),
        signed32(fields.number(META_CHUNK_ID, -1)),
        signed32(fields.number(META_NUM_CHUNKS, -1)),
        signed32(fields.number(META_TOTAL_CHUNK_SIZE, -1)),
        fields.has_number(META_TXN_LEAST) != 0 or fields.has_number(META_TXN_MOST) != 0,
        fields.number(META_TXN_LEAST, 0),
        fields.number(META_TXN_MOST, 0),
        signed32(fields.number(META_MARKER_TYPE, -1)),
        signed64(fields.number(META_DELIVER_AT_TIME, 0))
        if fields.has_number(META_DELIVER_AT_TIME)
        else -1,
        fields.octets(META_SCHEMA_VERSION),
        fields.octets(META_SCHEMA_ID),
        fields.has_span(META_ENCRYPTION_KEYS) != 0,
        fields.text(META_REPLICATED_FROM),
        fields.has_span(META_PROPERTIES) != 0,
    )
    metadata: Metadata = _tuple_new(Metadata, values)
    return metadata


def read_receipt(frame: Buffer) -> Receipt:
    """Read SEND_RECEIPT, as a client does."""
    view = frame if type(frame) is memoryview else memoryview(frame)
    fields = _command(view, _SEND_RECEIPT)
    producer_id = fields.needed(_RECEIPT_PRODUCER_ID)
    sequence_id = fields.needed(_RECEIPT_SEQUENCE_ID)
    highest = fields.number(_RECEIPT_HIGHEST_SEQUENCE_ID, 0)
    fields.into(_RECEIPT_MESSAGE_ID)
    values = (
        producer_id,
        sequence_id,
        highest,
        fields.needed(_ID_LEDGER),
        fields.needed(_ID_ENTRY),
    )
    receipt: Receipt = _tuple_new(Receipt, values)
    return receipt


def read_message(frame: Buffer) -> Delivery:
    """Read MESSAGE, as a client does, without its section."""
    view = frame if type(frame) is memoryview else memoryview(frame)
    fields = _command(view, _MESSAGE)
    consumer_id = fields.needed(_MESSAGE_CONSUMER_ID)
    redelivery_count = truncated32(fields.number(_MESSAGE_REDELIVERY_COUNT, 0))
    epoch: object = -1
    if fields.has_number(_MESSAGE_CONSUMER_EPOCH):
        epoch = fields.number(_MESSAGE_CONSUMER_EPOCH, 0)
    words = _words(fields, _MESSAGE_ACK_SET, MAX_ACK_PARTS)
    fields.into(_MESSAGE_MESSAGE_ID)
    values = (
        consumer_id,
        fields.needed(_ID_LEDGER),
        fields.needed(_ID_ENTRY),
        signed32(fields.number(_ID_PARTITION, -1)),
        signed32(fields.number(_ID_BATCH_INDEX, -1)),
        redelivery_count,
        words,
        epoch,
        _command_end(view),
    )
    delivery: Delivery = _tuple_new(Delivery, values)
    return delivery


# ---- Encoding. Fields in the order of their numbers, as the runtime encodes them. Each tag takes a
# byte, which is what the constants in the sums below are.


def _head(room: Room, kind: Int, size: Int, section_size: Int) -> None:
    """Write what precedes the fields of a command of `size` bytes."""
    command_size = 3 + size_of(size) + size
    room.uint32(4 + command_size + section_size)
    room.uint32(command_size)
    room.byte(_TAG_BASE_TYPE)
    room.byte(kind)
    room.byte(kind << _NUMBER_SHIFT | _BYTES)
    room.varint(size)


def encode_send_receipt(
    producer_id: Int, sequence_id: Int, highest_sequence_id: Int, ledger_id: Int, entry_id: Int
) -> Octets:
    """Return a whole SEND_RECEIPT frame."""
    id_size = 2 + size_of(ledger_id) + size_of(entry_id)
    size = 5 + size_of(producer_id) + size_of(sequence_id) + id_size + size_of(highest_sequence_id)
    room = Room(128)
    _head(room, _SEND_RECEIPT, size, 0)
    room.field(_TAG_RECEIPT_PRODUCER_ID, producer_id)
    room.field(_TAG_RECEIPT_SEQUENCE_ID, sequence_id)
    room.field(_TAG_RECEIPT_MESSAGE_ID, id_size)
    room.field(_TAG_ID_LEDGER, ledger_id)
    room.field(_TAG_ID_ENTRY, entry_id)
    room.field(_TAG_RECEIPT_HIGHEST_SEQUENCE_ID, highest_sequence_id)
    return room.written()


def encode_send_head(  # noqa: PLR0917 - once per message
    producer_id: Int,
    sequence_id: Int,
    num_messages: Int,
    highest_sequence_id: Int,
    is_chunk: Int,
    section_size: Int,
    txn_id: Words = (),
) -> Octets:
    """Return what precedes the section in SEND; a highest sequence id of 0 is left out.

    `txn_id` is the most and the least bits of its transaction, or empty.
    """
    most = least = 0
    size = 2 + size_of(producer_id) + size_of(sequence_id)
    if num_messages != 1:
        size += 1 + size_of(num_messages)
    if txn_id:
        most, least = txn_id
        size += 2 + size_of(least) + size_of(most)
    if highest_sequence_id:
        size += 1 + size_of(highest_sequence_id)
    if is_chunk:
        size += 2
    room = Room(128)
    _head(room, _SEND, size, section_size)
    room.field(_TAG_SEND_PRODUCER_ID, producer_id)
    room.field(_TAG_SEND_SEQUENCE_ID, sequence_id)
    if num_messages != 1:
        room.field(_TAG_SEND_NUM_MESSAGES, num_messages)
    if txn_id:
        room.field(_TAG_SEND_TXN_LEAST, least)
        room.field(_TAG_SEND_TXN_MOST, most)
    if highest_sequence_id:
        room.field(_TAG_SEND_HIGHEST_SEQUENCE_ID, highest_sequence_id)
    if is_chunk:
        room.field(_TAG_SEND_IS_CHUNK, 1)
    return room.written()


def encode_message_head(  # noqa: PLR0917 - once per message
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
    """Return what precedes the section in MESSAGE, `broker_entry` (0e02 ...) included.

    A redelivery count of 0 and a consumer epoch of -1 are left out, as by Apache Pulsar; a
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
    _head(room, _MESSAGE, size, len(broker_entry) + section_size)
    room.field(_TAG_MESSAGE_CONSUMER_ID, consumer_id)
    room.field(_TAG_MESSAGE_MESSAGE_ID, id_size)
    room.field(_TAG_ID_LEDGER, ledger_id)
    room.field(_TAG_ID_ENTRY, entry_id)
    room.field(_TAG_ID_PARTITION, index)
    if redelivery_count:
        room.field(_TAG_MESSAGE_REDELIVERY_COUNT, redelivery_count)
    for word in ack_set:
        room.field(_TAG_MESSAGE_ACK_SET, unsigned64(word))
    if consumer_epoch != -1:
        room.field(_TAG_MESSAGE_CONSUMER_EPOCH, epoch)
    return room.written() + broker_entry if broker_entry else room.written()


def encode_messages(  # noqa: PLR0917 - the fields of MESSAGE
    consumer_id: Int,
    ledger_id: Int,
    entry_ids: Sequence[int],
    partition: Int,
    consumer_epoch: object,
    sections: Sequence[Buffer],
) -> list[Buffer]:
    """Return the frames of MESSAGE for entries of a ledger that were never sent before."""
    frames: list[Buffer] = []
    for entry_id, section in zip(entry_ids, sections, strict=True):
        size = len(section)
        frames.append(
            encode_message_head(
                consumer_id, ledger_id, entry_id, partition, 0, (), consumer_epoch, size, b""
            )
        )
        frames.append(section)
    return frames
