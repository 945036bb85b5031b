"""Frames of Pulsar's binary protocol, by the protobuf runtime; what is hot stands in hot.py.

A frame, here and in hot.py, is what follows totalSize (wire/frames.py has split it off):

    +--------------------+-------------+----------------------------------------------+
    | commandSize uint32 | BaseCommand | section, of SEND and MESSAGE only            |
    +--------------------+-------------+----------------------------------------------+

    section:
    +- - - - - - - - - - - - -+- - - - - - - - +---------------------+----------+---------+
    : 0e02 | size | BrokerEnt.: 0e01 | crc32c  : metadataSize uint32 | metadata | payload |
    +- - - - - - - - - - - - -+- - - - - - - - +---------------------+----------+---------+
      to whom asked for it      not from old     the checksum covers from here to the end
                                clients

Which of these parts are there is seen by their first two bytes (seed 000, payload commands).
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from google.protobuf.message import DecodeError

from trilogue.wire.errors import EncodeError, WireError
from trilogue.wire.pulsar.commands import BY_TYPE
from trilogue.wire.pulsar.hot import command_type, read_metadata
from trilogue.wire.pulsar.pulsar_pb2 import BaseCommand, BrokerEntryMetadata
from trilogue.wire.texts import check_text

__all__ = [
    "CHECKSUM_MAGIC",
    "MAX_FRAME_SIZE",
    "MAX_MESSAGE_SIZE",
    "SLACK",
    "broker_entry",
    "command_type",
    "parse_command",
    "read_metadata",
    "section_of",
    "simple",
]

MAX_MESSAGE_SIZE: Final = 5 * 1024 * 1024
"""What CONNECTED announces: metadata and payload of one SEND, as clients count."""
SLACK: Final = 10_240
"""How much longer a frame may be than the largest message, as at real brokers."""
MAX_FRAME_SIZE: Final = MAX_MESSAGE_SIZE + SLACK
CHECKSUM_MAGIC: Final = b"\x0e\x01"
BROKER_ENTRY_MAGIC: Final = b"\x0e\x02"

_SIZE: Final = Struct(">I")
_HEAD: Final = Struct(">II")
_BROKER_ENTRY: Final = Struct(">2sI")


def simple(command: BaseCommand) -> bytes:
    """Write a whole frame of a command that has no section, totalSize included."""
    try:
        body = command.SerializeToString()
    except Exception as error:  # the runtime's EncodeError is no class of its own in all versions
        raise EncodeError(f"{error}") from error
    return _HEAD.pack(len(body) + 4, len(body)) + body


def parse_command(frame: memoryview) -> BaseCommand:
    """Read the command of a frame: whole, with its sub-message, its text in UTF-8."""
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


def section_of(frame: memoryview) -> memoryview:
    """What follows the command of SEND and MESSAGE."""
    return frame[_command_end(frame) :]


def broker_entry(broker_timestamp_ms: int, index: int) -> bytes:
    """Write what may precede the section in MESSAGE: 0e02, size, when and at which index."""
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
