"""Frames: any cutting of the stream gives the same frames, and no length is believed."""

from __future__ import annotations

import itertools
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pure import load_pure
from trilogue.wire.errors import WireError
from trilogue.wire.frames import (
    BUSY_CAPACITY,
    INITIAL_CAPACITY,
    RETAINED_CAPACITY,
    Frames,
    Int32Frames,
)

LIMIT = 1 << 20


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def feed(frames: Frames, data: bytes) -> list[bytes]:
    """Receive all of `data`, as much at a time as there is room for; take frames at once."""
    taken = []
    while data:
        room = frames.get_buffer()
        part = data[: len(room)]
        room[: len(part)] = part
        frames.received(len(part))
        data = data[len(part) :]
        while (frame := frames.next()) is not None:
            taken.append(bytes(frame))
    return taken


sizes = st.one_of(
    st.integers(0, 40),
    st.sampled_from([4000, 5000, INITIAL_CAPACITY - 4, INITIAL_CAPACITY, 300_000]),
)


@given(st.lists(sizes, max_size=8), st.lists(st.integers(1, 70_000), max_size=5))
def test_any_cutting_of_the_stream_gives_the_same_frames(wanted: list[int], cuts: list[int]):
    sent = [bytes([index]) * size for index, size in enumerate(wanted)]
    stream, frames, taken = b"".join(map(framed, sent)), Int32Frames(LIMIT), []

    for size in itertools.cycle([*cuts, 50_000]):
        taken += feed(frames, stream[:size])
        stream = stream[size:]
        if not stream:
            break

    assert taken == sent
    assert frames.pending == 0


def test_one_byte_at_a_time():
    frames, sent = Int32Frames(LIMIT), [b"", b"x", b"hello" * 10]

    taken = [frame for byte in b"".join(map(framed, sent)) for frame in feed(frames, bytes([byte]))]

    assert taken == sent


def test_a_frame_is_a_view_of_what_was_received():
    frames = Int32Frames(LIMIT)
    room = frames.get_buffer()
    room[:7] = framed(b"abc")
    frames.received(7)

    frame = frames.next()
    room[4:5] = b"X"

    assert frame is not None
    assert bytes(frame) == b"Xbc"


@pytest.mark.parametrize("length", [-1, -(1 << 31), LIMIT + 1, (1 << 31) - 1])
def test_a_negative_or_too_large_length_is_refused_at_once_and_for_ever(length: int):
    frames = Int32Frames(LIMIT)

    for _ in range(2):
        with pytest.raises(WireError, match=f"frame of {length} bytes"):
            feed(frames, length.to_bytes(4, "big", signed=True) + b"x")


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"GET / HTTP/1.1\r\n", "an HTTP request"),
        (b"POST /x HTTP/1.1\r\n", "an HTTP request"),
        (b"\x16\x03\x01\x02\x00\x01", "a TLS handshake"),
    ],
)
def test_a_request_of_another_protocol_is_named(data: bytes, name: str):
    frames = Int32Frames(LIMIT)

    with pytest.raises(WireError, match=f"this is {name}"):
        feed(frames, data)


def test_the_limit_itself_is_accepted():
    frames = Int32Frames(10)

    assert feed(frames, framed(b"0123456789")) == [b"0123456789"]
    frames.limit -= 1
    with pytest.raises(WireError):
        feed(frames, framed(b"0123456789"))


def test_memory_grows_with_received_bytes_and_not_with_the_declared_length():
    frames = Int32Frames(100 << 20)
    tracemalloc.start()

    feed(frames, (99 << 20).to_bytes(4, "big") + bytes(100))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert frames.capacity == INITIAL_CAPACITY
    assert peak < 1 << 20


def test_capacity_stays_within_twice_what_was_received():
    frames = Int32Frames(100 << 20)
    feed(frames, (99 << 20).to_bytes(4, "big"))

    for received in range(4096, 2 << 20, 4096):
        feed(frames, bytes(4096))

        assert frames.capacity <= max(INITIAL_CAPACITY, 2 * received + 4096)


def test_an_empty_buffer_gives_back_what_a_big_frame_took_when_nothing_comes_any_more():
    frames = Int32Frames(LIMIT)
    feed(frames, framed(bytes(LIMIT)))
    assert frames.capacity > RETAINED_CAPACITY

    frames.get_buffer()
    frames.rest()
    assert frames.capacity > RETAINED_CAPACITY, "the next one may come at once"
    frames.rest()

    assert frames.capacity == INITIAL_CAPACITY


@pytest.fixture(params=["compiled", "uncompiled"])
def int32_frames(request: pytest.FixtureRequest) -> type[Int32Frames]:
    if request.param == "compiled":
        return Int32Frames
    return load_pure("trilogue.wire.frames").Int32Frames


@pytest.mark.parametrize("cut", [0, 1, 9_000])
def test_buffer_shrinks_after_large_frames_are_followed_by_small_ones(int32_frames, cut: int):
    """Ten thousand such peers held 40 GB: something came between any two rests."""
    frames = int32_frames(BUSY_CAPACITY)
    feed(frames, framed(bytes(BUSY_CAPACITY - 4)))
    assert frames.capacity == BUSY_CAPACITY
    small = framed(bytes(12_000))
    stream = small * 4
    feed(frames, stream[:cut])

    for _ in range(2):
        frames.rest()
        taken = feed(frames, stream[cut : cut + len(small)])
        assert taken == [bytes(12_000)]

    assert frames.capacity == INITIAL_CAPACITY


def test_buffer_keeps_its_capacity_for_constant_large_frames(int32_frames):
    frames = int32_frames(BUSY_CAPACITY)
    large = framed(bytes(1_000_000))
    feed(frames, large)
    held = frames.capacity

    memory = frames._buffer.obj
    for _ in range(5):
        frames.rest()
        assert frames._buffer.obj is not memory
        assert feed(frames, large) == [bytes(1_000_000)]
        assert frames.capacity == held
        assert frames._buffer.obj is memory, "nothing was grown anew"


def test_buffer_shrinks_to_twice_the_needed_capacity(int32_frames):
    frames = int32_frames(BUSY_CAPACITY)
    feed(frames, framed(bytes(BUSY_CAPACITY - 4)))

    for _ in range(2):
        frames.rest()
        assert len(feed(frames, framed(bytes(300_000)))[0]) == 300_000

    frames.rest()
    assert frames.capacity <= 2 * RETAINED_CAPACITY + INITIAL_CAPACITY


@given(
    st.lists(sizes, max_size=8),
    st.lists(st.integers(0, 70_000), min_size=1, max_size=12),
)
def test_rests_in_between_lose_nothing(wanted: list[int], cuts: list[int]):
    """Zero is a rest."""
    sent = [bytes([index]) * size for index, size in enumerate(wanted)]
    stream = b"".join(map(framed, sent))
    for frames in Int32Frames(LIMIT), load_pure("trilogue.wire.frames").Int32Frames(LIMIT):
        taken, left = [], stream
        for size in itertools.cycle([*cuts, 0, 50_000]):
            if size == 0:
                frames.rest()
            taken += feed(frames, left[:size])
            left = left[size:]
            if not left:
                break

        assert taken == sent
        assert frames.pending == 0


def test_a_very_large_buffer_is_given_back_as_soon_as_it_is_empty():
    frames = Int32Frames(2 * BUSY_CAPACITY)
    feed(frames, framed(bytes(2 * BUSY_CAPACITY)))
    assert frames.capacity > BUSY_CAPACITY

    frames.get_buffer()

    assert frames.capacity == INITIAL_CAPACITY


def test_pending_bytes_stay_when_a_buffer_is_shrunk():
    frames = Int32Frames(LIMIT)
    body = bytes(range(256)) * 2000
    feed(frames, framed(body)[:-1])
    grown = frames.capacity

    frames.rest()

    assert frames.capacity == grown
    assert feed(frames, framed(body)[-1:]) == [body]


def test_there_is_always_room_to_receive():
    frames = Int32Frames(LIMIT)

    for _ in range(200):
        room = frames.get_buffer()
        assert len(room) > 0
        room[: min(len(room), 5000)] = bytes(min(len(room), 5000))
        frames.received(min(len(room), 5000))
        while frames.next() is not None:
            pass


def test_claiming_more_than_the_room_is_a_programming_error():
    frames = Int32Frames(LIMIT)

    with pytest.raises(AssertionError):
        frames.received(len(frames.get_buffer()) + 1)


def test_a_frame_that_fits_the_buffer_does_not_make_it_grow():
    frames = Int32Frames(LIMIT)
    body = bytes(INITIAL_CAPACITY - 4)

    assert feed(frames, framed(body)[:-10]) == []
    assert feed(frames, bytes(10)) == [body]

    assert frames.capacity == INITIAL_CAPACITY


@pytest.mark.parametrize("seen", [1, 2, 3])
def test_a_prefix_cut_by_the_end_of_the_buffer_moves_to_the_front(seen: int):
    frames = Int32Frames(LIMIT)
    second = framed(b"second")

    feed(frames, framed(bytes(INITIAL_CAPACITY - 4 - seen)) + second[:seen])

    assert feed(frames, second[seen:]) == [b"second"]
    assert frames.capacity == INITIAL_CAPACITY
