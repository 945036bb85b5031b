"""Request templates have the same effect as the codec and the handler, for any frame."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from tests.gateway.kafka.produce.test_produce import only, request
from tests.gateway.kafka.rig import Rig, batch, settle, versions
from tests.gateway.loop import on_loop
from tests.pure import load_pure
from trilogue.gateway.kafka.produce import request_template
from trilogue.gateway.kafka.produce.request_template import TEMPLATES_MAX, RequestTemplates

PURE = load_pure("trilogue.gateway.kafka.produce.request_template")
START = 5


@pytest.fixture
def without_templates(monkeypatch):
    """A gateway that learns no templates."""

    def forget() -> None:
        monkeypatch.setattr(RequestTemplates, "learn", lambda *_: False)

    return forget


async def answers(rig: Rig, requests, version: int) -> list[bytes]:
    peer = rig.peer()
    for requested in requests:
        await peer.request(requested, version)
    return peer.transport.frames()


@pytest.mark.parametrize("version", versions(0))
def test_the_short_way_answers_to_the_byte_as_the_long_way(version, without_templates):
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
    without_templates()
    run()

    assert found[0] == found[1]


@on_loop
async def test_a_shape_is_learned_once_for_all_connections():
    async with Rig() as rig:
        rig.topic("t", partitions=3)
        for index in (0, 1, 2, 0):
            await rig.peer().request(request("t", batch("a"), index=index), 7)

        assert len(rig.gateway.templates) == 1


@on_loop
async def test_shapes_are_bounded():
    async with Rig() as rig:
        rig.topic("t")
        peer = rig.peer()
        for timeout_ms in range(TEMPLATES_MAX + 10):
            requested = request("t", batch("a"))
            requested.timeout_ms = timeout_ms
            peer.send(requested, 7)
            await settle()

        assert len(rig.gateway.templates) <= TEMPLATES_MAX


@on_loop
async def test_complex_request_creates_no_template():
    async with Rig() as rig:
        rig.topic("t", partitions=2)
        peer = rig.peer()
        two = request("t", batch("a"))
        two.topic_data[0].partition_data *= 2
        twice = request("t", batch("a"))
        twice.topic_data *= 2
        for requested in (two, twice, request("t", batch("a"), acks=7), request("u", batch("a"))):
            await peer.request(requested, 7)

        assert len(rig.gateway.templates) == 0


@pytest.mark.parametrize("version", [3, 8, 9, 13])
def test_a_frame_with_a_known_prefix_and_any_rest_is_taken_or_costs_its_sender_only(version):
    """A frame that does not match a template is decoded; the effect is always the same."""

    @settings(max_examples=25, deadline=None)
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
                requested = request("t", batch("a" * 20), topic_id=topic.topic_id)
                await peer.request(requested, version)
                peer.send(requested, version)
                await settle()
                sent = peer.transport.frames()
                assert len(sent) == 2
                frame = bytearray(raw(requested, version))
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


def raw(requested, version: int) -> bytes:
    from trilogue.wire.kafka.codec.compile import encoder
    from trilogue.wire.kafka.codec.header import RequestHeader, encode_request_header

    body = bytearray()
    encode_request_header(body, RequestHeader(0, version, 5, "rig"))
    encoder(type(requested), version)(requested, body)
    return bytes(body)


def template(module, *, flexible: bool, log_start: bool = True):
    made = module.RequestTemplate.__new__(module.RequestTemplate)
    made._start, made._flexible, made._old_codecs = START, flexible, False
    made._response, made._numbers_at, made._log_start = bytes(60), 20, log_start
    return made


def parsed(module, frame: bytes, *, flexible: bool) -> tuple[int, bytes] | None:
    found = template(module, flexible=flexible).parse(memoryview(frame))
    return None if found is None else (found[0], bytes(found[1]))


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

    assert parsed(request_template, frame, flexible=flexible) == parsed(
        PURE, frame, flexible=flexible
    )


@given(octets=some.binary(max_size=40), flexible=some.booleans())
def test_any_bytes_are_looked_at_without_harm(octets: bytes, flexible: bool):
    assert parsed(request_template, octets, flexible=flexible) == parsed(
        PURE, octets, flexible=flexible
    )


@given(numbers=some.lists(some.integers(-1, 2**31 - 1), min_size=5, max_size=5))
def test_twins_write_the_same_answer(numbers):
    for log_start in (False, True):
        responses = [
            bytes(template(module, flexible=True, log_start=log_start).write_response(*numbers))
            for module in (request_template, PURE)
        ]

        assert responses[0] == responses[1]


def test_a_length_that_never_ends_is_no_length():
    frame = b"begin" + bytes(4) + b"\xff" * 30

    assert (
        parsed(request_template, frame, flexible=True) is parsed(PURE, frame, flexible=True) is None
    )
