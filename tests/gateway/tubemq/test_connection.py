"""Envelopes, services and versions; malformed and late requests; back-pressure."""

from __future__ import annotations

import logging
import struct

import pytest

from tests.gateway.loop import on_loop
from tests.gateway.tubemq.rig import Failure, Rig, frame_of, send_frame, settle
from tests.waiting import pass_time
from trilogue.gateway.stream import STOP_BROKER, STOP_SESSION, Limits
from trilogue.gateway.tubemq.connection import UNDECODABLE_MAX
from trilogue.gateway.tubemq.settings import TubeSettings
from trilogue.log.journal.journal import JournalLimits
from trilogue.log.log import LogLimits
from trilogue.wire.tubemq.frame import encode_frame, encode_request

JAVA = "java.lang.Exception"
BAD_MESSAGE = "com.google.protobuf.InvalidProtocolBufferException"
REGISTER = {"clientId": "p-1", "hostName": "h", "brokerCheckSum": -1}
NARROW = LogLimits(
    tail_bytes=1 << 20,
    reserve_bytes=0,
    journal=JournalLimits(
        window_bytes=1 << 20, file_bytes=1 << 20, first_file_bytes=64 << 10, min_free_bytes=0
    ),
)


def request_frame(
    peer, number: int, service: int, body: bytes = b"", name: str = "sendMessageP2B"
) -> int:
    """Send a request by its numbers; its serial number."""
    serial = peer.number()
    peer._requests[serial] = name
    peer.give(encode_request(serial, service, number, body, timeout_ms=10_000))
    return serial


# ---- what is no request


@pytest.mark.parametrize("number", [0, 10, 11, 12, 14, 19, 23, 99, -1])
@on_loop
async def test_a_method_that_does_not_exist_is_fatal_and_the_connection_stays(number):
    async with Rig() as rig:
        peer = rig.master()

        serial = request_frame(peer, number, 1)

        text = f"IPC server handle request error :Unsupported method ID :{number}"
        assert peer.response(serial) == Failure(2, JAVA, text)
        assert (await peer.request("producerRegisterP2M", **REGISTER)).success


@on_loop
async def test_a_message_without_its_required_fields_is_fatal():
    async with Rig() as rig:
        peer = rig.master()

        response = peer.response(request_frame(peer, 1, 1, b""))

        assert (response.status, response.exception) == (2, BAD_MESSAGE)
        assert "missing required fields: clientId" in response.text


@on_loop
async def test_a_send_that_is_none_is_fatal():
    async with Rig() as rig:
        peer = rig.broker_peer()

        response = peer.response(request_frame(peer, 13, 3, b"\x0a\x05abc"))

        assert (response.status, response.exception) == (2, BAD_MESSAGE)
        assert not peer.is_cut


@on_loop
async def test_an_envelope_that_is_none_is_fatal_under_its_serial_number():
    async with Rig() as rig:
        peer = rig.broker_peer()
        peer._requests[77] = "sendMessageP2B"

        peer.give(encode_frame(77, b"garbage"))

        response = peer.response(77)
        assert (response.status, response.exception) == (2, "java.io.EOFException")
        assert response.text.startswith("IPC server unable to read call parameters:")


def test_undecodable_requests_are_logged_once_and_end_the_connection(caplog):
    @on_loop
    async def scenario():
        async with Rig() as rig:
            peer = rig.broker_peer()
            for serial in range(UNDECODABLE_MAX):
                peer.give(encode_frame(serial, b"garbage"))
            assert not peer.is_cut
            peer.give(encode_frame(UNDECODABLE_MAX, b"garbage"))
            assert peer.is_cut

    caplog.set_level(logging.WARNING)
    scenario()
    response = [record.getMessage() for record in caplog.records]
    assert response == ["request.undecodable", "connection.bad_bytes"]


def test_a_wrong_token_ends_the_connection_with_one_line(caplog):
    @on_loop
    async def scenario():
        async with Rig() as rig:
            peer = rig.broker_peer()
            peer.give(b"\xff\x7f\xf4\xfd" + bytes(20))
            assert peer.is_cut

    caplog.set_level(logging.WARNING)
    scenario()
    assert [record.getMessage() for record in caplog.records] == ["connection.bad_bytes"]


def test_a_frame_without_blocks_is_logged_and_ignored(caplog):
    """listSize 0 is ignored, as by a real server."""

    @on_loop
    async def scenario():
        async with Rig() as rig:
            peer = rig.master()
            peer.give(struct.pack(">Iii", 0xFF7FF4FE, 5, 0) * 50)
            assert (await peer.request("producerRegisterP2M", **REGISTER)).success
            assert peer.order == [1]

    caplog.set_level(logging.INFO)
    scenario()
    assert [record.getMessage() for record in caplog.records].count("request.empty") == 1


@on_loop
async def test_a_request_may_come_in_any_pieces_and_blocks():
    async with Rig() as rig:
        rig.topic("demo")
        peer = rig.broker_peer()
        whole = send_frame(9, "demo", 0, b"x" * 20_000)
        body = b"".join(whole[at + 4 : at + 8196] for at in range(12, len(whole), 8196))
        pieces = [body[at : at + 100] for at in range(0, len(body), 100)]
        cut = struct.pack(">Iii", 0xFF7FF4FE, 10, len(pieces))
        cut += b"".join(struct.pack(">i", len(each)) + each for each in pieces)
        peer._requests |= {9: "sendMessageP2B", 10: "sendMessageP2B"}

        peer.give(whole, piece=1)
        peer.give(cut, piece=777)

        assert [(await peer.wait(serial)).appendOffset for serial in (9, 10)] == [0, 1]


# ---- services and versions


@pytest.mark.parametrize("service", [2, 3])
@on_loop
async def test_sends_are_taken_through_both_services_of_a_broker(service):
    """The Go client sends through the read service."""
    async with Rig() as rig:
        rig.topic("demo")
        assert (await rig.broker_peer().send("demo", service=service)).success


@pytest.mark.parametrize(
    ("at_master", "number", "service"),
    [(True, 1, 9), (True, 1, 2), (True, 1, 0), (False, 13, 1), (False, 17, 9), (False, 4, 1)],
)
@on_loop
async def test_another_service_is_an_error_and_the_connection_stays(at_master, number, service):
    async with Rig() as rig:
        rig.topic("demo")
        peer = rig.master() if at_master else rig.broker_peer()
        names = {1: "producerRegisterP2M", 13: "sendMessageP2B", 17: "getMessagesC2B"}
        fields = {
            1: REGISTER,
            4: {**REGISTER, "groupName": "g"},
            13: {"clientId": "c", "topicName": "demo", "partitionId": 0, "data": b"x"},
            17: {"clientId": "c", "topicName": "demo", "partitionId": 0, "groupName": "g"},
        }[number]
        if number == 4:
            del fields["brokerCheckSum"]
        if number == 13:
            fields |= {"flag": 0, "checkSum": -1, "sentAddr": 0}

        response = await peer.request(
            names.get(number, "consumerRegisterC2M"), service=service, **fields
        )

        assert response == Failure(1, JAVA, "Service Type is invalid!")
        assert not peer.is_cut


@pytest.mark.parametrize("version", [0, 1, 2, 3])
@on_loop
async def test_every_version_of_the_protocol_is_answered(version):
    async with Rig() as rig:
        rig.topic("demo")
        assert (await rig.broker_peer().send("demo", version=version)).success
        assert (
            await rig.master().request("producerRegisterP2M", version=version, **REGISTER)
        ).success


@pytest.mark.parametrize(
    ("version", "package"),
    [(1, "com.tencent.tubemq"), (2, "org.apache.tubemq"), (3, "org.apache.inlong.tubemq")],
)
@on_loop
async def test_a_standby_sends_clients_to_the_next_master(version, package):
    """StandbyException, under the name that the client knows."""
    async with Rig(tube=TubeSettings(standby=True)) as rig:
        rig.topic("demo")
        response = await rig.master().request("producerRegisterP2M", version=version, **REGISTER)

        assert (response.status, response.exception) == (
            1,
            f"{package}.corerpc.exception.StandbyException",
        )
        assert (await rig.broker_peer().send("demo")).success


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        (
            "brokerRegisterB2M",
            {
                "clientId": "1:h:1:2.4.0",
                "brokerOnline": True,
                "enableTls": False,
                "readStatusRpt": 0,
                "writeStatusRpt": 0,
                "curBrokerConfId": 0,
                "confCheckSumId": 0,
                "brokerDefaultConfInfo": "",
            },
        ),
        (
            "brokerHeartbeatB2M",
            {
                "brokerId": "1",
                "brokerOnline": True,
                "readStatusRpt": 0,
                "writeStatusRpt": 0,
                "curBrokerConfId": 0,
                "confCheckSumId": 0,
                "takeConfInfo": False,
                "takeRemovedTopicInfo": False,
            },
        ),
        ("brokerCloseClientB2M", {"brokerId": "1"}),
    ],
)
@on_loop
async def test_real_brokers_are_notified_that_they_cannot_join(name, fields):
    async with Rig() as rig:
        response = await rig.master().request(name, **fields)

        assert (response.success, response.errCode) == (False, 403)
        assert "brokers cannot join" in response.errMsg


# ---- what comes too late


@on_loop
async def test_a_request_older_than_its_timeout_is_dropped_without_an_answer():
    """The timeout is how long a request may wait until it is processed."""
    async with Rig() as rig:
        rig.topic("demo")
        peer = rig.broker_peer()
        peer._requests |= {1: "sendMessageP2B", 2: "sendMessageP2B", 3: "consumerHeartbeatC2B"}
        beat = frame_of(
            3, "consumerHeartbeatC2B", clientId="c", groupName="g", readStatus=0, timeout_ms=1_000
        )
        peer.stream.stop(STOP_SESSION)
        early = send_frame(1, "demo", 0, b"early", timeout_ms=1_000)
        peer.stream._frames.get_buffer()[: len(early)] = early
        peer.stream.buffer_updated(len(early))
        rest = send_frame(2, "demo", 0, b"in time", timeout_ms=60_000) + beat
        peer.stream._frames.get_buffer()[: len(rest)] = rest
        peer.stream.buffer_updated(len(rest))
        peer.connection._note_stop()

        await pass_time(2)
        peer.stream.go_on(STOP_SESSION)
        await settle()

        assert [serial for serial in (1, 2, 3) if peer.is_answered(serial)] == [2]
        assert rig.gateway.dropped == 2


async def filled(rig: Rig) -> None:
    """Fill the log until it is under pressure."""
    rig.topic("filler")
    filler = rig.broker_peer()
    while not rig.log.under_pressure:
        assert (await filler.send("filler", data=b"x" * 100_000)).success


@on_loop
async def test_under_pressure_a_send_waits_for_room():
    async with Rig(log_limits=NARROW) as rig:
        rig.topic("demo")
        await filled(rig)
        peer = rig.broker_peer()

        serial = peer.send_request("sendMessageP2B", **SEND)
        assert peer.stream.stops & STOP_BROKER
        await pass_time(5)
        assert not peer.is_answered(serial)
        await rig.flush()

        assert (await peer.wait(serial)).success
        assert not peer.stream.stops
        assert rig.gateway.overflows == 0


@on_loop
async def test_a_send_that_would_wait_longer_than_its_client_is_refused_with_419():
    async with Rig(log_limits=NARROW) as rig:
        rig.topic("demo")
        await filled(rig)
        peer = rig.broker_peer()
        began = rig.loop.time()

        first = peer.send_request("sendMessageP2B", timeout_ms=2_000, **SEND)
        response = await peer.wait(first)

        assert (response.success, response.errCode) == (False, 419)
        assert 1.7 < rig.loop.time() - began < 2.0
        assert rig.gateway.overflows == 1
        await rig.flush()
        assert (await peer.send("demo")).success


@on_loop
async def test_each_send_that_waits_is_refused_at_its_own_time():
    async with Rig(log_limits=NARROW) as rig:
        rig.topic("demo")
        await filled(rig)
        peer = rig.broker_peer()
        peer._requests |= {101: "sendMessageP2B", 102: "sendMessageP2B"}
        peer.give(
            send_frame(101, "demo", 0, b"x", timeout_ms=1_000)
            + send_frame(102, "demo", 0, b"x", timeout_ms=4_000)
        )

        assert (await peer.wait(101)).errCode == 419
        assert not peer.is_answered(102)
        await rig.flush()

        assert (await peer.wait(102)).success


SEND = {
    "clientId": "c",
    "topicName": "demo",
    "partitionId": 0,
    "data": b"x",
    "flag": 0,
    "checkSum": -1,
    "sentAddr": 0,
}


@on_loop
async def test_thousands_of_sends_in_flight_are_all_taken():
    """The Java client's asynchronous load has 2,000 in flight: none may be rejected."""
    async with Rig() as rig:
        rig.topic("demo")
        peer = rig.broker_peer()
        peer._requests |= dict.fromkeys(range(3_000), "sendMessageP2B")
        frames = b"".join(send_frame(serial, "demo", 0, b"x" * 100) for serial in range(3_000))

        for at in range(0, len(frames), 32_000):
            peer.give(frames[at : at + 32_000])
            await settle()
        await peer.wait(2_999)

        assert all(peer.response(serial).success for serial in range(3_000))
        assert rig.gateway.overflows == 0


@on_loop
async def test_with_much_in_flight_a_connection_is_not_read():
    async with Rig(tube=TubeSettings(sends_in_flight_max=10)) as rig:
        rig.topic("demo")
        peer = rig.broker_peer()
        for serial in range(1, 11):
            peer._requests[serial] = "sendMessageP2B"

        peer.give(b"".join(send_frame(serial, "demo", 0, b"x") for serial in range(1, 11)))
        assert peer.stream.stops & STOP_SESSION
        await settle()

        assert not peer.stream.stops
        peer.read_responses()
        assert len(peer.order) == 10


# ---- the end


@on_loop
async def test_drain_answers_requests_in_flight_and_closes():
    async with Rig() as rig:
        rig.topic("demo")
        peer = rig.broker_peer()
        serial = peer.send_request("sendMessageP2B", **SEND)

        peer.connection.drain()
        assert not peer.is_cut
        await settle()

        assert peer.response(serial).success
        assert peer.is_cut


@on_loop
async def test_an_idle_connection_is_cut():
    async with Rig(limits=Limits(idle_s=100)) as rig:
        peer = rig.broker_peer()
        peer.stream.sweep(0)
        peer.stream.sweep(101)
        assert peer.is_cut


@on_loop
async def test_oversized_request_ends_the_connection():
    async with Rig(tube=TubeSettings(request_bytes_max=10_000)) as rig:
        peer = rig.broker_peer()
        peer.send_request(
            "consumerHeartbeatC2B", clientId="c" * 20_000, groupName="g", readStatus=0
        )
        assert peer.is_cut
