"""One connection: bytes in any pieces, garbage, the order of responses, overload, and closing."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from tests.gateway.fakes import frame
from tests.gateway.kafka.fetch.test_fetch import fetch
from tests.gateway.kafka.groups.test_classic import join
from tests.gateway.kafka.groups.test_committed_offsets import commit
from tests.gateway.kafka.produce.test_produce import only
from tests.gateway.kafka.produce.test_produce import request as produce
from tests.gateway.kafka.rig import Rig, batch, settle
from tests.gateway.loop import on_loop
from tests.waiting import pass_time
from trilogue.gateway.kafka import apis
from trilogue.gateway.stream import Limits
from trilogue.log.journal.journal import JournalLimits
from trilogue.log.log import LogLimits
from trilogue.wire.kafka.groups.classic import HeartbeatRequest
from trilogue.wire.kafka.metadata.api_versions import ApiVersionsRequest
from trilogue.wire.kafka.metadata.metadata import MetadataRequest


def head(key: int, version: int, correlation_id: int = 7, client: bytes = b"\xff\xff") -> bytes:
    return struct.pack(">hhi", key, version, correlation_id) + client


@pytest.mark.parametrize("piece", [1, 2, 3, 5, 64])
@on_loop
async def test_requests_are_understood_in_whatever_pieces_they_come(piece):
    async with Rig() as rig:
        rig.topic("t")
        peer = rig.peer()

        peer.send(ApiVersionsRequest(), 0, piece=piece)
        for number in range(3):
            peer.send(produce("t", batch(f"{number}")), 9, piece=piece)
        peer.send(MetadataRequest(topics=None), 12, piece=piece)
        await peer.wait()
        await settle()

        assert len(peer.answer().api_keys) == len(apis.advertised_versions())
        assert [only(peer.answer()).base_offset for _ in range(3)] == [0, 1, 2]
        assert [topic.name for topic in peer.answer().topics] == ["t"]


@on_loop
async def test_answers_leave_in_the_order_of_the_requests_whatever_each_waits_for():
    """Responses of a connection are in request order."""
    async with Rig() as rig:
        rig.topic("t")
        peer = rig.peer()
        kinds = [
            (produce("t", batch("a")), 7),
            (MetadataRequest(topics=None), 1),
            (join(), 3),  # the group waits for more members
            (produce("t", batch("b")), 7),
            (commit("t", 1), 6),
            (fetch("t", 5, max_wait_ms=3_000), 11),
            (fetch("t", 2, max_wait_ms=3_000), 11),
            (HeartbeatRequest(group_id="g"), 0),
        ]
        for requested, version in kinds:
            peer.send(requested, version)

        await pass_time(10)

        names = [type(peer.answer()).__name__.removesuffix("Response") for _ in kinds]
        expected = [type(requested).__name__.removesuffix("Request") for requested, _ in kinds]
        assert names == expected  # `answer` has checked the correlation ids too


# ---- what is not a request


@pytest.mark.parametrize("version", [5, 100, -1, 32767])
@on_loop
async def test_an_unknown_version_of_api_versions_is_answered_in_v0(version):
    """KIP-511: error 35 with the range of ApiVersions; the connection stays open."""
    async with Rig() as rig:
        peer = rig.peer()

        peer.transport.receive(frame(head(18, version) + b"\x02a\x02b\x00"))

        (answer,) = peer.transport.frames()
        correlation_id, error, count, key, low, high = struct.unpack(">ihihhh", answer)
        assert (correlation_id, error, count, key, low, high) == (7, 35, 1, 18, 0, 4)
        assert not peer.is_cut


@pytest.mark.parametrize(
    ("name", "version", "code"),
    [("a.b-c", "1.0", 0), ("", "1", 42), ("-a", "1", 42), ("a", "1 0", 42), ("a b", "1", 42)],
)
@on_loop
async def test_the_clients_software_name_is_checked(name, version, code):
    async with Rig() as rig:
        requested = ApiVersionsRequest(client_software_name=name, client_software_version=version)

        assert (await rig.peer().request(requested, 3)).error_code == code
        assert (await rig.peer().request(requested, 0)).error_code == 0


OUTSIDE = [
    (key, version)
    for row in apis.TABLE
    for key, version in ((row.key, row.served[1] + 1), (row.key, -1), (row.key, 32_767))
    if key != 18
]


@pytest.mark.parametrize(
    ("key", "version"), [*OUTSIDE, (4, 0), (7, 0), (99, 0), (-1, 0), (32_767, 0)]
)
@on_loop
async def test_an_unknown_request_closes_the_connection_with_one_log_line(key, version, caplog):
    async with Rig() as rig:
        peer = rig.peer()

        peer.transport.receive(frame(head(key, version) + bytes(50)))

        assert peer.is_cut
        assert peer.transport.written == b""
        assert caplog.messages == ["request.not_served"]
        assert (caplog.records[0].key, caplog.records[0].address) == (key & 0xFFFF, "192.0.2.1")


HUGE = struct.pack(">i", 2**31 - 1)
VARINT = b"\xff\xff\xff\xff\xff\xff"
HOSTILE = {
    "empty": b"",
    "half a header": b"\x00\x03\x00",
    "no client id": struct.pack(">hhi", 3, 1, 1),
    "client id too long": head(3, 1, client=b"\x7f\xff"),
    "client id not utf-8": head(3, 1, client=b"\x00\x02\xff\xfe") + HUGE,
    "no body": head(3, 1),
    "2^31-1 topics": head(3, 1) + HUGE,
    "-2 topics": head(0, 7) + b"\xff\xff\x00\x01" + bytes(4) + struct.pack(">i", -2),
    "2^31-1 partitions": head(1, 4) + bytes(17) + b"\x00\x00\x00\x01\x00\x01t" + HUGE,
    "string length": head(10, 0) + b"\x7f\xff" + b"g",
    "bad varint": head(3, 9, client=b"\xff\xff\x00") + VARINT,
    "bad tag count": head(3, 9, client=b"\xff\xff" + VARINT) + b"\x01",
    "2^31-1 tags": head(3, 9, client=b"\xff\xff\xff\xff\xff\xff\x07") + b"\x01",
    "tag longer than the frame": head(3, 9, client=b"\xff\xff\x01\x00\x7f") + b"\x01",
    "http": b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(50),
}


@pytest.mark.parametrize("kind", HOSTILE)
@on_loop
async def test_hostile_bytes_cost_their_sender_the_connection_and_no_other_anything(kind, caplog):
    """One closed connection, one log line, a healthy client goes on."""
    async with Rig() as rig:
        rig.topic("t")
        healthy, hostile = rig.peer(), rig.peer()
        await healthy.request(produce("t", batch("a")), 7)

        hostile.transport.receive(frame(HOSTILE[kind]))
        await settle()

        assert hostile.is_cut
        assert len(caplog.messages) == 1
        assert only(await healthy.request(produce("t", batch("b")), 7)).base_offset == 1


@on_loop
async def test_a_declared_length_alone_takes_no_memory():
    """99 MiB frames without a body."""
    async with Rig() as rig:
        peers = [rig.peer() for _ in range(20)]

        for peer in peers:
            peer.transport.receive(struct.pack(">i", 99 << 20) + b"some")

        assert sum(peer.stream._frames.capacity for peer in peers) <= 20 * (64 << 10)


@pytest.mark.parametrize("row", apis.TABLE, ids=lambda row: row.name)
@on_loop
async def test_only_requests_that_carry_much_may_be_large(row, caplog):
    """Decoding millions of small elements would hold the loop."""
    async with Rig() as rig:
        peer = rig.peer()

        peer.transport.receive(frame(head(row.key, row.served[1]) + bytes(8 << 20)))
        await settle()

        large = row.name in {"Produce", "JoinGroup", "SyncGroup"}
        assert caplog.messages == ["connection.bad_bytes" if large else "request.too_large"]


@settings(max_examples=25, deadline=None)
@given(
    key=some.sampled_from([row.key for row in apis.TABLE]),
    version=some.integers(0, 18),
    body=some.binary(max_size=120),
)
def test_no_bytes_at_all_may_do_more_than_close_their_connection(key, version, body):
    """Any bytes close their own connection at most, never the gateway."""

    @on_loop
    async def run():
        async with Rig() as rig:
            rig.topic("t")
            peer = rig.peer()
            peer.transport.receive(frame(head(key, version, client=b"\xff\xff\x00") + body))
            await settle()
            healthy = await rig.peer().request(produce("t", batch("b")), 7)
            assert only(healthy).error_code == 0

    run()


# ---- pressure and limits

SMALL_TAIL = LogLimits(
    tail_bytes=64 << 10,
    reserve_bytes=0,
    journal=JournalLimits(
        window_bytes=1 << 20, file_bytes=64 << 10, first_file_bytes=16 << 10, min_free_bytes=0
    ),
)


@on_loop
async def test_producers_pause_while_the_tail_is_full_and_go_on_when_it_was_flushed():
    """At 80 % of the tail Produce pauses; fetches go on."""
    async with Rig(log_limits=SMALL_TAIL) as rig:
        topic = rig.topic("t")
        writer, reader = rig.peer(), rig.peer()
        sent = 0
        while writer.transport.reading and sent < 100:
            writer.send(produce("t", batch("x" * 4_000)), 7)
            sent += 1
            await settle()
        assert 5 <= sent < 30
        assert rig.log.under_pressure
        await pass_time(3_000)
        assert not writer.is_cut
        assert topic.partitions[0].log.end_offset == sent - 1
        assert (await reader.request(fetch("t", 0), 11)).responses[0].partitions[0].error_code == 0

        await rig.flush()
        await settle()

        assert topic.partitions[0].log.end_offset == sent
        assert writer.transport.reading
        assert only([writer.answer() for _ in range(sent)][-1]).error_code == 0


@on_loop
async def test_requests_in_flight_are_bounded():
    async with Rig(limits=Limits(in_flight_requests=10)) as rig:
        topic = rig.topic("t")
        peer = rig.peer()
        body = bytearray()
        for _ in range(30):
            peer.transport.stuck = True
            if peer.transport.reading:
                peer.send(fetch("t", 0, max_wait_ms=60_000), 11)
                body += b"."

        assert len(body) == 10
        watchers = topic.partitions[0].log._appender.watchers
        assert len(watchers) == 1  # only the first of them is scanned


@on_loop
async def test_a_mistake_of_ours_ends_one_connection_and_not_the_listener(monkeypatch, caplog):
    async with Rig() as rig:
        rig.topic("t")
        monkeypatch.setattr(rig.broker.groups, "heartbeat", lambda *_: 1 / 0)
        peer = rig.peer()

        peer.send(HeartbeatRequest(group_id="g"), 0)

        assert peer.is_cut
        assert "connection.failed" in caplog.messages
        assert only(await rig.peer().request(produce("t", batch("a")), 7)).error_code == 0


@on_loop
async def test_a_mistake_in_a_task_ends_one_connection_and_not_the_listener(monkeypatch, caplog):
    async with Rig() as rig:
        rig.topic("t")

        async def fail(_commit):
            raise ZeroDivisionError

        monkeypatch.setattr(rig.gateway, "write_metadata", fail)
        peer = rig.peer()
        peer.send(MetadataRequest(topics=None), 1)
        peer.answer()

        from tests.gateway.kafka.topics.test_topics import create, topic

        answer = await peer.request(create(topic("u"), timeout_ms=50), 5)

        assert answer.topics[0].error_code == 7
        assert "task.failed" in caplog.messages
        assert only(await rig.peer().request(produce("t", batch("a")), 7)).error_code == 0


@on_loop
async def test_requests_are_counted_by_their_key():
    async with Rig() as rig:
        rig.topic("t")
        peer = rig.peer()
        for _ in range(3):
            await peer.request(produce("t", batch("a")), 7)
        await peer.request(MetadataRequest(topics=None), 1)

        assert dict(rig.gateway.requests) == {0: 3, 3: 1}


@on_loop
async def test_responses_after_a_pending_commit_are_sent_in_order():
    async with Rig() as rig:
        rig.topic("t")
        peer = rig.peer()
        peer.send(produce("t", batch("a")), 7)
        peer.send(MetadataRequest(topics=None), 1)
        assert peer.answered == 0

        await settle()

        assert only(peer.answer()).base_offset == 0
        assert [topic.name for topic in peer.answer().topics] == ["t"]
