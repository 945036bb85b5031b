"""The compiled way of a produce request and its plain twin say the same about any bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tests.gateway.kafka.rig import Rig, batch, settle
from tests.gateway.kafka.test_produce import only, request
from tests.gateway.loop import on_loop
from tests.pure import load_pure
from trilogue.gateway.kafka import hot

PURE = load_pure("trilogue.gateway.kafka.hot")
START = 5


def shape(room, *, flexible: bool, starts_told: bool = True):
    made = room.HotShape()
    made._start, made._flexible, made._old_codecs = START, flexible, False
    made._answer, made._numbers_at, made._starts_told = bytes(60), 20, starts_told
    return made


def found(room, frame: bytes, *, flexible: bool) -> tuple[int, bytes] | None:
    taken = shape(room, flexible=flexible).find(memoryview(frame))
    return None if taken is None else (taken[0], bytes(taken[1]))


@pytest.mark.parametrize("flexible", [False, True])
@given(data=some.data())
def test_twins_find_the_same_in_any_frame(flexible: bool, data):
    records = data.draw(some.binary(max_size=200))
    size = data.draw(some.sampled_from([len(records), len(records) + 1, 0, -1]))
    length = (
        (size + 1).to_bytes(1, "big")
        if flexible and size < 127
        else bytes([(size + 1) & 0x7F | 0x80, (size + 1) >> 7])
        if flexible
        else size.to_bytes(4, "big", signed=True)
    )
    index = data.draw(some.integers(-2, 3)).to_bytes(4, "big", signed=True)
    frame = b"begin" + index + length + records + b"\0\0\0" * flexible
    frame = frame[: data.draw(some.sampled_from([len(frame), len(frame) - 1, 7, 12]))]

    assert found(hot, frame, flexible=flexible) == found(PURE, frame, flexible=flexible)


@given(octets=some.binary(max_size=40), flexible=some.booleans())
def test_any_bytes_are_looked_at_without_harm(octets: bytes, flexible: bool):
    assert found(hot, octets, flexible=flexible) == found(PURE, octets, flexible=flexible)


@given(numbers=some.lists(some.integers(-1, 2**31 - 1), min_size=5, max_size=5))
def test_twins_write_the_same_answer(numbers):
    for starts_told in (False, True):
        answers = [
            bytes(shape(room, flexible=True, starts_told=starts_told).answer(*numbers))
            for room in (hot, PURE)
        ]

        assert answers[0] == answers[1]


def test_a_length_that_never_ends_is_no_length():
    frame = b"begin" + bytes(4) + b"\xff" * 30

    assert found(hot, frame, flexible=True) is found(PURE, frame, flexible=True) is None


@pytest.mark.parametrize("room", [hot, PURE], ids=["installed", "pure"])
def test_replies_of_a_failed_commit_are_taken_back_one_by_one(room):
    place = room.Committing()
    place.replies = [(b"yes", lambda number, what, _: b"%d%s" % (number, what), 7, b"no")] * 2
    assert place.render() == [b"yesyes"]

    place.problem = RuntimeError()

    assert place.render() == [b"7no7no"]


@on_loop
async def test_a_frame_cut_behind_what_is_known_goes_the_long_way():
    """The prefix is that of a request before, and nothing follows: bad bytes, and no accident."""
    async with Rig() as rig:
        rig.topic("t")
        peer = rig.peer()
        only(await peer.ask(request("t", batch("a")), 7))
        (prefix,) = rig.door.shapes._shapes
        body = (7).to_bytes(4, "big") + bytes(4) + prefix

        peer.transport.receive(len(body).to_bytes(4, "big") + body)
        await settle()

        assert peer.is_cut
