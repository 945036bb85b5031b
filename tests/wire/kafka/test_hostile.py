"""Hostile bytes: a message or a WireError, in bounded time and memory."""

from __future__ import annotations

import itertools
import time
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.wire.kafka import samples
from tests.wire.kafka.instances import SPOKEN, Spoken, messages, newest
from trilogue.wire.errors import EncodeError, WireError
from trilogue.wire.kafka.api import MESSAGES
from trilogue.wire.kafka.codec import runtime
from trilogue.wire.kafka.codec.compile import decoder, encoder
from trilogue.wire.kafka.codec.schema import table
from trilogue.wire.kafka.fetch import FetchRequest, FetchResponse
from trilogue.wire.kafka.groups.classic import SyncGroupResponse
from trilogue.wire.kafka.metadata.metadata import MetadataRequest, MetadataResponse
from trilogue.wire.kafka.produce import ProduceRequest
from trilogue.wire.kafka.topics.topics import DeleteTopicsRequest

ALL = [*SPOKEN, *(Spoken(samples.Everything, version) for version in range(samples.LAST + 1))]
EDGES = [
    Spoken(cls, version)
    for pair in MESSAGES.values()
    for cls in pair
    for version in sorted({table(cls).flexible - 1, table(cls).flexible, table(cls).last})
    if table(cls).first <= version <= table(cls).last
]
few = settings(
    max_examples=8, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck)
)
HOSTILE = (0x7FFFFFFF, -1, -2, -(1 << 31), 0x10000, 0x7FFF)
BAD_VARINTS = ("80", "8080808080", "ffffffff7f", "ffffffff0f", "ffffffffffffffffff01")


def survive(spoken: Spoken, raw: bytes) -> None:
    """Decode; anything but a message or a WireError fails the test."""
    try:
        _, end = decoder(*spoken)(raw)
    except WireError:
        return
    assert end <= len(raw)


@pytest.mark.parametrize("spoken", [newest(each) for each in ALL])
@few
@given(raw=st.binary(max_size=300))
def test_any_bytes_give_a_message_or_a_wire_error(spoken: Spoken, raw: bytes):
    survive(spoken, raw)


@pytest.mark.parametrize("spoken", [newest(each, pytest.mark.long) for each in ALL])
@few
@given(data=st.data())
def test_damaged_messages_give_a_message_or_a_wire_error(spoken: Spoken, data: st.DataObject):
    raw = bytearray()
    encoder(*spoken)(data.draw(messages(*spoken)), raw)
    raw = raw[:400]
    places = st.integers(0, max(0, len(raw) - 1))

    for place, byte in data.draw(st.lists(st.tuples(places, st.integers(0, 255)), max_size=3)):
        if raw:
            raw[place] = byte
    survive(spoken, bytes(raw))


@pytest.mark.parametrize("spoken", [newest(each, pytest.mark.long) for each in ALL])
@few
@given(data=st.data())
def test_a_message_that_is_cut_off_anywhere_is_a_wire_error(spoken: Spoken, data: st.DataObject):
    raw = bytearray()
    encoder(*spoken)(data.draw(messages(*spoken)), raw)

    for size in itertools.chain(range(min(len(raw), 60)), [len(raw) - 1]):
        if 0 <= size < len(raw):
            with pytest.raises(WireError):
                decoder(*spoken)(bytes(raw[:size]))


@pytest.mark.parametrize("spoken", EDGES, ids=str)
def test_a_hostile_number_anywhere_costs_nothing(spoken: Spoken):
    """Every length, count and tag of a small message is overwritten in turn."""
    raw = bytearray()
    encoder(*spoken)(spoken.cls(), raw)
    small = bytes(raw[:64]) + bytes(8)
    survive(spoken, bytes(raw))  # the decoder itself is made now: its memory is not the message's
    tracemalloc.start()
    began = time.perf_counter()

    for place in range(len(small)):
        for number in HOSTILE:
            survive(spoken, small[:place] + number.to_bytes(4, "big", signed=True) + small[place:])
        for varint in BAD_VARINTS:
            survive(spoken, small[:place] + bytes.fromhex(varint) + small[place:])

    took = time.perf_counter() - began
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert took < 60  # not quadratic, on a slow machine too
    assert peak < 1 << 20


@pytest.mark.parametrize(
    ("cls", "version", "raw", "why"),
    [
        (MetadataRequest, 1, "7fffffff", "array of 2147483647 elements"),
        (MetadataRequest, 1, "00000003 0001 61 0000", "array of 3 elements"),
        (MetadataRequest, 0, "ffffffff", "array of -1 elements"),
        (MetadataRequest, 0, "80000000", "array of -2147483648 elements"),
        (MetadataRequest, 9, "05 01 00 01 00 00 00", "array of 4 elements"),
        (MetadataRequest, 9, "ffffffff07", "array of 2147483646 elements"),
        (MetadataRequest, 9, "ffffffff0f", "bad varint"),
        (MetadataRequest, 9, "ffffffff7f", "bad varint"),
        (MetadataRequest, 9, "808080808000", "bad varint"),
        (MetadataRequest, 9, "01 01 00 00 ffff03", "array of 65535 elements"),
        (MetadataRequest, 9, "01 01 00 00 01 05 03 abab", "cut off"),
        (samples.Tagged, 1, "04 0000", "array of 4 elements"),
        (samples.Tagged, 1, "01 63 03 abab", "cut off"),
        (FetchRequest, 4, "ffffffff" + 12 * "00" + "00 7fffffff", "array of 2147483647"),
        (FetchRequest, 4, "ffffffff" + 12 * "00" + "00 00000001 ffff 00000000", "null where"),
        (FetchRequest, 4, "ffffffff" + 12 * "00" + "00 00000001 8000 00000000", "null where"),
        (FetchRequest, 12, "ffffffff" + 12 * "00" + "00" + 8 * "00" + "02 00 01 00 01 01 00",
         "null where"),
        (ProduceRequest, 3, "ffff 0001 00000000 00000001 0001 61 00000001 00000000 7fffffff",
         "cut off"),
        (ProduceRequest, 9, "00 0001 00000000 02 0261 02 00000000 818004", "cut off"),
        (MetadataResponse, 0, "00000000 00000001 0000 0001 61 00000001" + 10 * "00"
         + "00000009 00000000",
         "array of 9 elements"),
        (SyncGroupResponse, 0, "0000 ffffffff", "null where"),
        (SyncGroupResponse, 4, 6 * "00" + "00 00", "null where"),
    ],
)  # fmt: skip
def test_a_hostile_count_or_length_is_refused_for_what_it_is(
    cls: type, version: int, raw: str, why: str
):
    with pytest.raises(WireError, match=f"{cls.__name__} v{version}: .*{why}"):
        decoder(cls, version)(bytes.fromhex(raw))


def test_bad_utf8_is_a_wire_error():
    with pytest.raises(WireError, match="utf-8"):
        decoder(MetadataRequest, 1)(bytes.fromhex("00000001 0002 c328"))


def test_a_flexible_string_is_no_longer_than_kafka_allows():
    raw = runtime.uvarint(2) + runtime.uvarint(32769) + b"x" * 32768 + b"\0" * 4

    with pytest.raises(WireError, match="string of 32768 bytes"):
        decoder(MetadataRequest, 9)(raw)


def test_a_count_that_fits_the_bytes_costs_no_more_than_they_do():
    """The densest valid body: twenty thousand empty structures. Time and memory stay linear."""
    count = 20_000
    raw = bytes(10) + runtime.uvarint(count + 1) + (bytes(16) + b"\1\0") * count + b"\0"
    tracemalloc.start()
    began = time.process_time()

    response, _ = decoder(FetchResponse, 13)(raw)

    took = time.process_time() - began
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(response.responses) == count
    assert took < 60  # not quadratic, on a slow machine too
    assert peak < 200 * len(raw)


def test_a_message_has_a_bounded_number_of_elements():
    """An element can take one byte, so a frame within its limit could still need gigabytes."""
    most = runtime.MAX_ELEMENTS
    body = runtime.uvarint(most + 2) + b"\1" * (most + 1) + bytes(5)

    with pytest.raises(WireError, match=f"array of {most + 1} elements"):
        decoder(DeleteTopicsRequest, 5)(body)

    topic = b"\1" + runtime.uvarint(most // 2 + 1) + bytes(6) * (most // 2) + b"\0"
    with pytest.raises(WireError, match=f"array of {most // 2} elements"):
        decoder(ProduceRequest, 9)(b"\0" + bytes(6) + b"\4" + 3 * topic + b"\0")


@given(st.integers(0, runtime.MAX_LENGTH))
def test_varints_come_back_as_they_went(value: int):
    raw = runtime.uvarint(value)

    assert runtime.read_uvarint(raw, 0) == (value, len(raw))


def test_a_length_that_no_reader_would_take_is_not_written():
    with pytest.raises(EncodeError):
        runtime.uvarint(runtime.MAX_LENGTH + 1)


@pytest.mark.parametrize("edge", [127, 128, 16383, 16384, 2097151, 2097152, 268435455, 268435456])
def test_compact_lengths_at_the_edges_of_their_sizes(edge: int):
    raw = runtime.uvarint(edge)

    if len(raw) > 1:
        assert runtime.long_length(raw, 1) == (edge - 1, len(raw))
    assert runtime.read_uvarint(raw, 0) == (edge, len(raw))
