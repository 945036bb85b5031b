"""Frames of Pulsar's binary protocol, by the protobuf runtime.

The commands that pass once per message have a codec of their own, message_codec.py.

A frame, here and in message_codec.py, is what follows totalSize (wire/frames.py has split it off):

    +--------------------+-------------+----------------------------------------------+
    | commandSize uint32 | BaseCommand | section, of SEND and MESSAGE only            |
    +--------------------+-------------+----------------------------------------------+

    section:
    +- - - - - - - - - - - - -+- - - - - - - - +---------------------+----------+---------+
    : 0e02 | size | BrokerEnt.: 0e01 | crc32c  : metadataSize uint32 | metadata | payload |
    +- - - - - - - - - - - - -+- - - - - - - - +---------------------+----------+---------+
      for clients that          not from old     the checksum covers from here to the end
      declare it                clients

The first two bytes show which of these parts follow (docs/reference/wire/pulsar.md).
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from google.protobuf.message import DecodeError

from trilogue.wire.errors import EncodeError, WireError
from trilogue.wire.pulsar.commands import BY_TYPE
from trilogue.wire.pulsar.message_codec import read_command_type, read_metadata
from trilogue.wire.pulsar.pulsar_pb2 import BaseCommand, BrokerEntryMetadata
from trilogue.wire.texts import check_text

__all__ = [
    "CHECKSUM_MAGIC",
    "MAX_FRAME_SIZE",
    "MAX_MESSAGE_SIZE",
    "SLACK",
    "encode_broker_entry",
    "encode_command",
    "find_section",
    "parse_command",
    "read_command_type",
    "read_metadata",
]

MAX_MESSAGE_SIZE: Final = 5 * 1024 * 1024
"""What CONNECTED announces: metadata and payload of one SEND, as clients count."""
SLACK: Final = 10_240
"""How much longer a frame may be than the largest message, as at real brokers."""
MAX_FRAME_SIZE: Final = MAX_MESSAGE_SIZE + SLACK
CHECKSUM_MAGIC: Final[bytes] = b"\x0e\x01"
BROKER_ENTRY_MAGIC: Final[bytes] = b"\x0e\x02"

_SIZE: Final = Struct(">I")
_HEAD: Final = Struct(">II")
_BROKER_ENTRY: Final = Struct(">2sI")


def encode_command(command: BaseCommand) -> bytes:
    """Return the whole frame of a command without section, totalSize included; EncodeError."""
    try:
        body = command.SerializeToString()
    except Exception as error:  # the runtime's EncodeError is no class of its own in all versions
        raise EncodeError(f"{error}") from error
    return _HEAD.pack(len(body) + 4, len(body)) + body


def parse_command(frame: memoryview) -> BaseCommand:
    """Return the command of a frame, complete and with its text in UTF-8; WireError."""
    end = _command_end(frame)
    command = BaseCommand()
    try:
        command.ParseFromString(bytes(frame[4:end]))
    except DecodeError as error:
        raise WireError(f"{error}") from error
    if not command.IsInitialized():
        raise WireError("required fields are missing")
    row = BY_TYPE.get(command.type)
    if row is None or not command.HasField(row.field):
        raise WireError(f"command type {command.type} without its message")
    if end != len(frame) and not row.has_section:
        raise WireError(f"{len(frame) - end} bytes after {row.name}")
    if not command.SerializeToString().isascii():
        check_text(getattr(command, row.field))
    return command


def find_section(frame: memoryview) -> memoryview:
    """Return the section, which follows the command of SEND and MESSAGE."""
    return frame[_command_end(frame) :]


def encode_broker_entry(broker_timestamp_ms: int, index: int) -> bytes:
    """Return what may precede the section in MESSAGE: 0e02, size, broker entry metadata."""
    body = BrokerEntryMetadata(broker_timestamp=broker_timestamp_ms, index=index)
    octets = body.SerializeToString()
    return _BROKER_ENTRY.pack(BROKER_ENTRY_MAGIC, len(octets)) + octets


def _command_end(frame: memoryview) -> int:
    if len(frame) < 4:
        raise WireError(f"a frame of {len(frame)} bytes")
    (size,) = _SIZE.unpack_from(frame)
    if size > len(frame) - 4:
        raise WireError(f"a command of {size} bytes in a frame of {len(frame)}")
    return 4 + int(size)
