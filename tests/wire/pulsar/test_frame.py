"""Frames by the protobuf runtime, the table of commands, the errors, the generated code."""

from __future__ import annotations

from struct import pack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wire.pulsar.messages import encoded, sized, tagged, varint
from trilogue.wire.errors import EncodeError, WireError
from trilogue.wire.pulsar import errors, pulsar_pb2
from trilogue.wire.pulsar.commands import BY_NAME, BY_TYPE, COMMANDS, LATEST_VERSION, Sender
from trilogue.wire.pulsar.frame import (
    encode_broker_entry,
    encode_command,
    find_section,
    parse_command,
)
from trilogue.wire.pulsar.pulsar_pb2 import BaseCommand, BrokerEntryMetadata

PING = BaseCommand(type=BaseCommand.PING, ping={})


def frame_of(command: bytes, rest: bytes = b"") -> memoryview:
    return memoryview(pack(">I", len(command)) + command + rest)


def test_a_simple_command_is_its_size_twice_and_itself():
    whole = encode_command(PING)

    assert whole == bytes.fromhex("00000009 00000005 08129201 00".replace(" ", ""))
    assert parse_command(memoryview(whole)[4:]) == PING


def test_command_without_a_required_field_raises_encode_error():
    with pytest.raises(EncodeError):
        encode_command(BaseCommand(type=BaseCommand.SUCCESS, success={}))


@pytest.mark.parametrize("row", COMMANDS, ids=lambda row: row.name)
@given(data=st.data())
@settings(max_examples=10)
def test_every_command_is_read_and_written_again(row, data: st.DataObject):
    kind = BaseCommand.DESCRIPTOR.fields_by_number[row.type].message_type
    octets = tagged(1, 0, varint(row.type)) + sized(row.type, data.draw(encoded(kind)))

    command = parse_command(frame_of(octets))

    assert command.type == row.type
    assert command == parse_command(memoryview(encode_command(command))[4:])


BAD = {
    "empty": b"",
    "no type": sized(18, b""),
    "no message": b"\x08\x12",
    "another message": b"\x08\x12" + sized(19, b""),
    "unknown type": b"\x08\x29" + sized(41, b""),
    "missing field": b"\x08\x17" + sized(23, sized(1, b"topic")),
    "cut": encode_command(PING)[8:-1],
    "text": b"\x08\x17" + sized(23, sized(1, b"\xff\xff") + b"\x10\x01"),
    "text in a list": b"\x08\x17" + sized(
        23, sized(1, b"t") + b"\x10\x01" + sized(8, sized(1, b"\xff") + sized(2, b""))),
}  # fmt: skip


@pytest.mark.parametrize("command", BAD.values(), ids=BAD)
def test_a_command_that_is_none_is_refused(command: bytes):
    with pytest.raises(WireError):
        parse_command(frame_of(command))


def test_only_messages_have_something_behind_the_command():
    send = BaseCommand(type=BaseCommand.SEND, send={"producer_id": 1, "sequence_id": 2})
    frame = frame_of(send.SerializeToString(), b"section")

    assert parse_command(frame) == send
    assert bytes(find_section(frame)) == b"section"
    with pytest.raises(WireError, match="after PING"):
        parse_command(frame_of(PING.SerializeToString(), b"x"))


@given(octets=st.binary(max_size=80), size=st.integers(0, 100))
def test_any_bytes_are_a_command_or_a_wire_error(octets: bytes, size: int):
    for frame in (memoryview(octets), memoryview(pack(">I", size) + octets)):
        for read in (parse_command, find_section):
            try:
                read(frame)
            except WireError:
                continue


def test_broker_entry_metadata_precedes_the_section():
    octets = encode_broker_entry(1_700_000_000_000, 5)

    assert octets[:6] == b"\x0e\x02" + pack(">I", len(octets) - 6)
    found = BrokerEntryMetadata.FromString(octets[6:])
    assert (found.broker_timestamp, found.index) == (1_700_000_000_000, 5)


# ---- tables


def test_every_command_of_the_protocol_has_its_row():
    numbers = dict(BaseCommand.Type.items())

    assert {row.name: row.type for row in COMMANDS} == numbers
    for field in BaseCommand.DESCRIPTOR.fields:
        if field.name != "type":
            assert BY_TYPE[field.number].field == field.name
    assert set(BY_NAME) == set(numbers)


def test_no_command_is_newer_than_the_protocol():
    assert all(0 <= row.since <= LATEST_VERSION for row in COMMANDS)
    assert {row.name for row in COMMANDS if row.has_section} == {"SEND", "MESSAGE"}
    for row in COMMANDS:
        if row.name.endswith("_RESPONSE"):
            assert row.sender is Sender.BROKER or row.name == "AUTH_RESPONSE"


def test_error_codes_are_those_of_the_protocol():
    assert {each.name: each.value for each in errors.ServerError} == dict(
        pulsar_pb2.ServerError.items()
    )
