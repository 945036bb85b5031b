"""sendMessageP2B: appends, receipts after the commit, and errors in the words of a real broker."""

from __future__ import annotations

from zlib import crc32

import pytest
from msgspec.structs import replace

from tests.gateway.loop import on_loop
from tests.gateway.tubemq.partition_consumer import PartitionConsumer
from tests.gateway.tubemq.rig import LOG_LIMITS, Rig, send_frame, settle
from tests.waiting import pass_time
from tests.wire.tubemq.captures import recorded
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.entry.tubemq.tubemq_blob import NO_TIME, message_id, read_stored, verify_entry
from trilogue.entry.walk import read_header
from trilogue.gateway.tubemq import send
from trilogue.gateway.tubemq.auth.authentication import AuthenticationSettings
from trilogue.gateway.tubemq.errors import TEXT_MAX
from trilogue.log.partition_log import TailSlice
from trilogue.wire.tubemq.rpc_codec import parse_send

MIB = 1 << 20


def stored(rig: Rig, topic: str, partition: int = 0):
    """Return the entries of a partition as they are stored."""
    log = rig.broker.cluster.topic(rig.name(topic)).partition(partition).log
    found = log.read(0, 1 << 20)
    assert isinstance(found, TailSlice)
    entries = []
    data = memoryview(b"".join(found.slices))
    while data:
        header = read_header(data)
        verify_entry(data[: header.length], header)
        entries.append((header, read_stored(data[: header.length])))
        data = data[header.length :]
    return entries


@on_loop
async def test_a_message_is_answered_with_its_id_time_and_offset():
    async with Rig() as rig:
        topic = rig.topic("demo", 3)
        broker = rig.broker_peer()

        first = await broker.send("demo", 1, b"hello")
        second = await broker.send("demo", 1, b"again")

        assert (first.success, first.errCode) == (True, 200)
        assert first.messageId == message_id(topic.partitions[1].partition_id, 0)
        assert first.errMsg == str(first.messageId)
        assert (first.appendOffset, second.appendOffset) == (0, 1)
        assert first.appendTime == rig.now_ms
        assert first.HasField("requireAuth")
        assert not first.requireAuth


@on_loop
async def test_a_message_is_stored_as_it_came():
    async with Rig() as rig:
        rig.topic("demo")
        data = b"\0\0\0\x27$msgType$=typeA,$msgTime$=202611211200" + b"body"

        response = await rig.broker_peer().send(
            data=data, flag=1, msgType="typeA", msgTime="202611211200", sentAddr=-1073741310
        )

        assert response.success
        [(header, found)] = stored(rig, "demo")
        assert (header.base_offset, header.span, header.max_timestamp) == (0, 1, rig.now_ms)
        assert bytes(found.data) == data
        assert (found.flag, found.message_type, found.message_time) == (1, "typeA", 202611211200)
        assert (found.sent_addr, found.broker_ms) == (-1073741310, rig.now_ms)


@on_loop
async def test_sends_of_the_cpp_client_are_accepted():
    """As recorded.

    Unused bytes behind the request, a time in milliseconds as in its own example.
    """
    response = b"$msgTime$=1795309392909"
    sends = [frame.octets for frame in recorded("cpp-client") if response in frame.octets][:2]
    async with Rig() as rig:
        rig.topic("demo", 3)
        broker = rig.broker_peer()
        broker._requests |= dict.fromkeys((14, 15), "sendMessageP2B")

        broker.give(b"".join(sends))
        await settle()

        assert broker.response(14).success
        assert broker.response(15).success
        [(_, found)] = stored(rig, "demo", 0)
        assert bytes(found.data[4:]) == response + b",$msgType$=bcpp-11-xxxxxxxxxxxxx"
        assert (found.message_type, found.message_time) == ("b", NO_TIME)


@on_loop
async def test_an_answer_leaves_only_when_the_message_is_durable():
    async with Rig() as rig:
        rig.topic("demo")
        broker = rig.broker_peer()
        broker._requests[5] = "sendMessageP2B"
        durable = rig.log.journal.durable_through

        broker.give(send_frame(5, "demo", 0, b"x"))
        assert not broker.is_answered(5)
        await settle()

        assert broker.response(5).success
        assert rig.log.journal.durable_through == durable + 1


@on_loop
async def test_the_sends_of_a_turn_share_one_commit_and_one_write():
    async with Rig() as rig:
        rig.topic("demo", 2)
        broker = rig.broker_peer()
        broker._requests |= dict.fromkeys(range(50), "sendMessageP2B")
        commits, writes = rig.log.journal.counts.commits, broker.transport.writes

        broker.give(b"".join(send_frame(serial, "demo", serial % 2, b"x") for serial in range(50)))
        await settle()

        assert [broker.response(serial).appendOffset for serial in range(50)] == [
            serial // 2 for serial in range(50)
        ]
        assert rig.log.journal.counts.commits == commits + 1
        assert broker.transport.writes == writes + 1


@on_loop
async def test_a_topic_acknowledged_from_memory_is_answered_at_once(
    monkeypatch: pytest.MonkeyPatch,
):
    """By the handler, and after that without it."""
    handled: list[object] = []
    append_message = send.append_message

    def note(connection, request):
        handled.append(request)
        append_message(connection, request)

    monkeypatch.setattr(send, "append_message", note)
    async with Rig() as rig:
        monkeypatch.setattr(type(rig.rules), "allows_all", True)
        rig.topic("fast", flush="interval")
        broker = rig.broker_peer()
        broker._requests |= dict.fromkeys((5, 6), "sendMessageP2B")
        durable = rig.log.journal.durable_through

        for number, serial in enumerate((5, 6)):
            broker.give(send_frame(serial, "fast", 0, b"x"))
            assert broker.response(serial).appendOffset == number
        assert rig.log.journal.durable_through == durable
        assert len(handled) == 1


@on_loop
async def test_sends_that_memory_acknowledges_leave_with_one_write_and_no_other_callback(
    monkeypatch: pytest.MonkeyPatch,
):
    async with Rig() as rig:
        monkeypatch.setattr(type(rig.rules), "allows_all", True)
        rig.topic("fast", flush="interval")
        rig.topic("durable")
        broker = rig.broker_peer()
        await broker.send("fast")
        await broker.send("durable")
        broker._requests |= dict.fromkeys(range(100, 107), "sendMessageP2B")
        scheduled: list[object] = []
        monkeypatch.setattr(rig.gateway, "call_soon", scheduled.append)
        writes = broker.transport.writes

        broker.give(b"".join(send_frame(100 + number, "fast", 0, b"x") for number in range(5)))
        assert [broker.response(100 + number).appendOffset for number in range(5)] == [
            1,
            2,
            3,
            4,
            5,
        ]
        assert broker.transport.writes == writes + 1
        assert scheduled == []

        broker.give(send_frame(105, "durable", 0, b"x") + send_frame(106, "fast", 0, b"x"))
        assert broker.response(106).appendOffset == 6
        assert not broker.is_answered(105)
        await settle()
        assert broker.response(105).appendOffset == 1


@pytest.mark.parametrize("checksum", [-1, crc32(b"hello") & 0x7FFFFFFF])
@on_loop
async def test_a_right_checksum_is_taken_and_so_is_none(checksum):
    async with Rig() as rig:
        rig.topic("demo")
        assert (await rig.broker_peer().send(data=b"hello", checkSum=checksum)).success


NOT_THERE = "not existed, please check your configure"
SUM = crc32(b"hello") & 0x7FFFFFFF


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        (
            {"checkSum": 12345},
            403,
            f"Checksum msg data failure: 12345 of demo not equal to the data's checksum of {SUM}",
        ),
        ({"topic": "nope_nope"}, 403, f"topicName nope_nope {NOT_THERE}"),
        ({"topic": "a:b"}, 403, f"topicName a:b {NOT_THERE}"),
        ({"topic": ""}, 403, f"topicName  {NOT_THERE}"),
        ({"partition": 99}, 403, f"partitionId demo-99 {NOT_THERE}"),
        ({"partition": -1}, 403, f"partitionId demo--1 {NOT_THERE}"),
        ({"data": b""}, 400, "data length is zero!"),
        (
            {"data": b"x" * (MIB + 20_000)},
            400,
            "data length over max length, allowed max length is 1058816, data length is 1068576",
        ),
        ({"flag": 1, "data": b"\0\0\1\0cut"}, 400, ""),
    ],
    ids=lambda value: str(value)[:30],
)
@on_loop
async def test_invalid_send_gets_the_error_of_a_real_broker(fields, code, text):
    async with Rig() as rig:
        rig.topic("demo", 3)
        broker = rig.broker_peer()

        response = await broker.send(
            **{"topic": "demo", "partition": 0, "data": b"hello", **fields}
        )

        assert (response.success, response.errCode) == (False, code)
        assert response.errMsg.startswith(text)
        assert response.errMsg
        assert (await broker.send("demo")).appendOffset == 0


@on_loop
async def test_a_topic_has_its_own_largest_message_and_10_kib_beyond():
    async with Rig() as rig:
        rig.topic("small", max_message_bytes="20000")
        broker = rig.broker_peer()

        assert (await broker.send("small", data=b"x" * (20_000 + 10_240))).success
        assert (await broker.send("small", data=b"x" * (20_000 + 10_241))).errCode == 400


@on_loop
async def test_topic_closed_for_publish_returns_403():
    async with Rig() as rig:
        topic = rig.topic("closed")
        plan = rig.broker.cluster.plan_alter(topic.name, {"tubemq.accept-publish": "false"})
        broker = rig.broker_peer()
        assert (await broker.send("closed")).success
        await rig.commit(plan)

        response = await broker.send("closed")

        assert (response.success, response.errCode) == (False, 403)
        assert response.errMsg == "topicName closed has been closed"


@on_loop
async def test_a_deleted_topic_is_not_there_from_then_on():
    async with Rig() as rig:
        topic = rig.topic("gone")
        broker = rig.broker_peer()
        assert (await broker.send("gone")).success
        await rig.commit(rig.broker.cluster.plan_delete(topic.name))

        assert (await broker.send("gone")).errCode == 403


@on_loop
async def test_send_without_permission_is_denied_by_the_canonical_name():
    async with Rig() as rig:
        rig.topic("demo")
        broker = rig.broker_peer()
        assert (await broker.send("demo")).success
        rig.rules.deny(Operation.WRITE, ResourceKind.TOPIC, "public/default/demo")

        response = await broker.send("demo")

        assert (response.success, response.errCode) == (False, 415)


@on_loop
async def test_a_wrong_visit_token_is_refused_where_they_are_checked():
    async with Rig(demands=AuthenticationSettings(checks_visit=True)) as rig:
        rig.topic("demo")
        broker = rig.broker_peer()
        right = {"visitAuthorizedToken": rig.gateway.tokens.visit_token("192.0.2.2-1-1-1-1.13.0")}

        assert (await broker.send("demo", authInfo=right)).success
        response = await broker.send("demo", authInfo={"visitAuthorizedToken": 5})

        assert (response.success, response.errCode) == (False, 415)
        assert response.errMsg == "Visit Authorized Token is invalid!"
        assert (await broker.send("demo")).errCode == 415


@on_loop
async def test_a_failed_disk_takes_all_answers_of_the_turn_back():
    async with Rig() as rig:
        rig.topic("demo")
        broker = rig.broker_peer()
        broker._requests |= dict.fromkeys((101, 102, 103), "sendMessageP2B")
        rig.fail_disk("write")

        broker.give(b"".join(send_frame(serial, "demo", 0, b"x") for serial in (101, 102, 103)))
        await settle()

        assert [broker.response(serial).errCode for serial in (101, 102, 103)] == [503] * 3
        assert (await broker.send("demo")).errCode == 503


@on_loop
async def test_a_topic_that_wants_encrypted_messages_takes_none_of_these():
    async with Rig() as rig:
        topic = rig.topic("secret")
        plan = rig.broker.cluster.plan_alter(topic.name, {"pulsar.encryptionRequired": "true"})
        await rig.commit(plan)

        response = await rig.broker_peer().send("secret")

        assert (response.success, response.errCode) == (False, 403)


@on_loop
async def test_the_listener_counts_what_it_keeps():
    async with Rig() as rig:
        rig.topic("demo")
        broker = rig.broker_peer()
        await broker.send("demo", data=b"12345")
        await broker.send("nope", data=b"12345")

        assert (rig.gateway.messages_in, rig.gateway.bytes_in) == (1, 5)
        assert rig.gateway.broker_endpoint.requests == {13: 2}


@on_loop
async def test_a_full_disk_refuses_messages_until_there_is_room():
    limits = replace(LOG_LIMITS, journal=replace(LOG_LIMITS.journal, min_free_bytes=1 << 20))
    async with Rig(log_limits=limits) as rig:
        rig.topic("demo")
        broker = rig.broker_peer()
        rig.fs.free = 0
        for _ in range(100):  # the room is looked at every few MiB
            response = await broker.send(data=b"x" * 1_000_000)
            if not response.success:
                break

        assert response.errCode == 503
        rig.fs.free = 1 << 40
        await pass_time(1)
        assert (await broker.send("demo")).success


@on_loop
async def test_length_of_an_error_message_is_limited():
    async with Rig() as rig:
        response = await rig.broker_peer().send("x" * 1_000_000)
        assert response.errCode == 403
        assert len(response.errMsg) == TEXT_MAX


@on_loop
async def test_a_topic_that_was_deleted_and_made_again_is_the_new_one():
    async with Rig() as rig:
        peer = rig.broker_peer()
        old = rig.topic("demo")
        await peer.send("demo")
        await rig.commit(rig.broker.cluster.plan_delete(old.name))
        assert (await peer.send("demo")).errCode == 403
        new = rig.topic("demo", 2)

        response = await peer.send("demo", 1, b"again")

        assert response.success, response.errMsg
        assert new.partitions[1].log.high_watermark == 1
        registered = await PartitionConsumer(peer).register(1)
        assert registered.maxOffset == 1


@on_loop
async def test_a_second_send_of_a_client_to_a_topic_does_not_reach_the_handler(
    monkeypatch: pytest.MonkeyPatch,
):
    """Until something about the topic or the rules changes; then the handler decides again."""
    handled: list[bytes] = []
    append_message = send.append_message

    def note(connection, request):
        handled.append(bytes(parse_send(request.body).data))
        append_message(connection, request)

    monkeypatch.setattr(send, "append_message", note)
    async with Rig() as rig:
        monkeypatch.setattr(type(rig.rules), "allows_all", True)
        rig.topic("demo", 2)
        broker = rig.broker_peer()
        for data in (b"first", b"second", b"plain"):
            assert (await broker.send("demo", 1, data)).success
        assert handled == [b"first"]

        found = await broker.send("demo", 1, b"typed", msgType="kind", msgTime="202611290000")
        assert (found.success, found.appendOffset) == (True, 3)
        assert (await broker.send("demo", 0, b"other")).appendOffset == 0
        assert len(handled) == 1
        for header, message in stored(rig, "demo", 1)[2:]:
            assert header.base_offset in {2, 3}
            assert bytes(message.data) in {b"plain", b"typed"}

        refused = await broker.send("demo", 0, b"damaged", checkSum=1)
        assert refused.errCode == 403
        assert (await broker.send("demo", 2, b"nowhere")).success is False
        assert handled[1:] == [b"damaged", b"nowhere"]

        rig.gateway.forget_targets()
        assert (await broker.send("demo", 0, b"again")).success
        monkeypatch.setattr(type(rig.rules), "allows_all", False)  # rights have to be looked up
        assert (await broker.send("demo", 0, b"checked")).success
        assert handled[3:] == [b"again", b"checked"]
