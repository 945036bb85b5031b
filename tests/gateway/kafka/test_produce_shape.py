"""Shapes: the short way must do exactly what the long way does, for any frame at all."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from tests.gateway.kafka.rig import Rig, batch, settle, versions
from tests.gateway.kafka.test_produce import only, request
from tests.gateway.loop import on_loop
from trilogue.gateway.kafka.produce_shape import SHAPES_MAX, Shapes


@pytest.fixture
def without_shapes(monkeypatch):
    """A door that never learns."""

    def forget() -> None:
        monkeypatch.setattr(Shapes, "learn", lambda *_: False)

    return forget


async def answers(rig: Rig, requests, version: int) -> list[bytes]:
    peer = rig.peer()
    for asked in requests:
        await peer.ask(asked, version)
    return peer.transport.frames()


@pytest.mark.parametrize("version", versions(0))
def test_the_short_way_answers_to_the_byte_as_the_long_way(version, without_shapes):
    found = []

    @on_loop
    async def run():
        async with Rig() as rig:
            topic = rig.topic("some.topic", partitions=3)
            requests = [
                request(
                    "some.topic", batch("x" * size), index=index, topic_id=topic.topic_id, acks=acks
                )
                for size in (1, 10, 200, 20_000)
                for index in (0, 2, 1, 7, -1)
                for acks in (-1, 1, 5)
            ]
            found.append(await answers(rig, requests, version))

    run()
    without_shapes()
    run()

    assert found[0] == found[1]


@on_loop
async def test_a_shape_is_learned_once_for_all_connections():
    async with Rig() as rig:
        rig.topic("t", partitions=3)
        for index in (0, 1, 2, 0):
            await rig.peer().ask(request("t", batch("a"), index=index), 7)

        assert len(rig.door.shapes) == 1


@on_loop
async def test_shapes_are_bounded():
    async with Rig() as rig:
        rig.topic("t")
        peer = rig.peer()
        for timeout_ms in range(SHAPES_MAX + 10):
            asked = request("t", batch("a"))
            asked.timeout_ms = timeout_ms
            peer.send(asked, 7)
            await settle()

        assert len(rig.door.shapes) <= SHAPES_MAX


@on_loop
async def test_what_is_not_simple_is_not_learned():
    async with Rig() as rig:
        rig.topic("t", partitions=2)
        peer = rig.peer()
        two = request("t", batch("a"))
        two.topic_data[0].partition_data *= 2
        twice = request("t", batch("a"))
        twice.topic_data *= 2
        for asked in (two, twice, request("t", batch("a"), acks=7), request("u", batch("a"))):
            await peer.ask(asked, 7)

        assert len(rig.door.shapes) == 0


@pytest.mark.parametrize("version", [3, 8, 9, 13])
def test_a_frame_with_a_known_prefix_and_any_rest_is_taken_or_costs_its_sender_only(version):
    """What a shape cannot take the codec judges: no frame may do more than it would there."""

    @settings(max_examples=60, deadline=None)
    @given(
        cut=some.integers(0, 120),
        junk=some.binary(max_size=40),
        flips=some.lists(some.tuples(some.integers(8, 199), some.integers(0, 7)), max_size=3),
    )
    def judge(cut, junk, flips):
        @on_loop
        async def run():
            async with Rig() as rig:
                topic = rig.topic("t", partitions=2)
                peer = rig.peer()
                asked = request("t", batch("a" * 20), topic_id=topic.topic_id)
                await peer.ask(asked, version)
                peer.send(asked, version)
                await settle()
                sent = peer.transport.frames()
                assert len(sent) == 2
                frame = bytearray(raw(asked, version))
                for at, bit in flips:
                    if at < len(frame):
                        frame[at] ^= 1 << bit
                frame = frame[: len(frame) - cut] + junk
                peer.transport.receive(len(frame).to_bytes(4, "big") + frame)
                await settle()
                plog = topic.partitions[0].log
                assert plog.end_offset + topic.partitions[1].log.end_offset in {2, 3}
                if peer.answered == 3:
                    assert only(peer.answer()).base_offset == 0

        run()

    judge()


def raw(asked, version: int) -> bytes:
    from trilogue.wire.kafka.compile import encoder
    from trilogue.wire.kafka.header import RequestHeader, encode_request_header

    body = bytearray()
    encode_request_header(body, RequestHeader(0, version, 5, "rig"))
    encoder(type(asked), version)(asked, body)
    return bytes(body)
