"""What a handler may do with a request: respond at once, later, never twice; fail; raise; hold."""

from __future__ import annotations

import logging

import pytest

from tests.gateway.loop import on_loop
from tests.gateway.tubemq.rig import Failure, Peer, Rig, settle
from tests.waiting import pass_time
from trilogue.broker.errors import NotReady
from trilogue.gateway.stream import STOP_SESSION
from trilogue.gateway.tubemq.errors import TEXT_MAX, TubeRequestError
from trilogue.gateway.tubemq.settings import TubeSettings
from trilogue.wire.tubemq.errors import TubeCode
from trilogue.wire.tubemq.master_pb2 import CloseResponseM2P

METHOD = "producerCloseClientP2M"
OK = CloseResponseM2P(success=True, errCode=200, errMsg="by the test")


def served(rig: Rig, handler) -> Peer:
    """Return a client of a master that has this handler."""
    specs = rig.gateway.master_endpoint.specs
    specs[3] = specs[3]._replace(handler=handler)
    return rig.master()


def send_request(peer: Peer) -> int:
    return peer.send_request(METHOD, clientId="c")


@on_loop
async def test_a_message_that_a_handler_returns_is_the_answer():
    async with Rig() as rig:
        peer = served(rig, lambda _: OK)
        assert peer.response(send_request(peer)) == OK


@on_loop
async def test_a_coroutine_is_run_while_others_are_answered():
    async with Rig() as rig:
        contexts = []

        async def slowly(context):
            await pass_time(2)
            contexts.append(context)
            return OK

        peer = served(rig, slowly)
        first = send_request(peer)
        other = await peer.request(
            "producerRegisterP2M", clientId="c", hostName="h", brokerCheckSum=-1
        )

        assert other.success
        assert peer.connection.busy
        assert await peer.wait(first) == OK
        assert not peer.connection.busy
        assert len(contexts) == 1


@on_loop
async def test_an_answer_may_come_later_from_anywhere():
    async with Rig() as rig:
        waiting = []
        peer = served(rig, waiting.append)
        first, second = send_request(peer), send_request(peer)
        assert peer.connection.busy

        waiting[1].respond(OK)
        waiting[0].respond_error(TubeCode.NO_NODE, "not here")
        await settle()

        assert peer.response(second) == OK
        assert peer.order == [second, first]
        assert peer.response(first).errCode == TubeCode.NO_NODE
        assert not peer.connection.busy


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize(
    ("problem", "code"),
    [(NotReady("wait"), 503), (TubeRequestError(TubeCode.NO_NODE, "who?"), 411), (NotReady(), 503)],
)
@on_loop
async def test_exception_of_a_handler_is_answered_with_its_code(later, problem, code):
    async with Rig() as rig:

        def raising(_call):
            raise problem

        async def raising_later(_call):
            await pass_time(1)
            raise problem

        peer = served(rig, raising_later if later else raising)
        response = await peer.wait(send_request(peer))

        assert (response.success, response.errCode) == (False, code)
        assert response.errMsg == (str(problem) or "NotReady")


@pytest.mark.parametrize("later", [False, True])
def test_a_mistake_of_ours_ends_this_connection_only(later, caplog):
    def wrong(_call):
        raise ZeroDivisionError

    async def wrong_later(_call):
        await pass_time(1)
        raise ZeroDivisionError

    @on_loop
    async def scenario():
        async with Rig() as rig:
            peer = served(rig, wrong_later if later else wrong)
            other = rig.master()
            send_request(peer)
            await pass_time(2)
            assert peer.is_cut
            assert not other.is_cut

    caplog.set_level(logging.ERROR)
    scenario()
    assert len(caplog.records) == 1


@on_loop
async def test_a_refusal_has_a_bound():
    async with Rig() as rig:
        peer = served(
            rig, lambda context: context.respond_error(TubeCode.BAD_REQUEST, "x" * 100_000)
        )
        assert len(peer.response(send_request(peer)).errMsg) == TEXT_MAX


class Holder:
    """Holds a request, and records the calls."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.context = None

    def take(self, context) -> None:
        self.context = context
        context.hold(self)

    def end_early(self) -> None:
        self.events.append("hurry")
        self.context.respond(OK)

    def connection_closed(self) -> None:
        self.events.append("gone")


@on_loop
async def test_holder_of_a_request_is_notified_of_a_lost_connection():
    async with Rig() as rig:
        holder = Holder()
        peer = served(rig, holder.take)
        send_request(peer)

        peer.drop()
        holder.context.respond(OK)  # there is no peer

        assert holder.events == ["gone"]


@on_loop
async def test_drain_hurries_held_requests():
    async with Rig() as rig:
        holder = Holder()
        peer = served(rig, holder.take)
        serial = send_request(peer)

        peer.connection.drain()
        await settle()

        assert holder.events == ["hurry"]
        assert peer.response(serial) == OK
        assert peer.is_cut


@on_loop
async def test_a_drain_waits_for_requests_at_work():
    async with Rig() as rig:

        async def slowly(_call):
            await pass_time(3)
            return OK

        peer = served(rig, slowly)
        serial = send_request(peer)

        peer.connection.drain()
        await pass_time(2)
        assert not peer.is_cut
        await pass_time(2)

        assert peer.response(serial) == OK
        assert peer.is_cut


@on_loop
async def test_with_many_requests_at_work_a_connection_is_not_read():
    async with Rig(tube=TubeSettings(requests_in_flight_max=4)) as rig:
        waiting = []
        peer = served(rig, waiting.append)
        for _ in range(4):
            send_request(peer)

        assert peer.stream.stops & STOP_SESSION
        for context in waiting:
            context.respond(OK)
        await settle()

        assert not peer.stream.stops
        assert not isinstance(peer.response(4), Failure)


@on_loop
async def test_no_call_is_answered_twice():
    async with Rig() as rig:
        waiting = []
        peer = served(rig, waiting.append)
        send_request(peer)
        waiting[0].respond(OK)

        with pytest.raises(AssertionError, match="answered twice"):
            waiting[0].respond(OK)


@on_loop
async def test_a_request_is_measured_until_it_is_answered():
    async with Rig() as rig:
        waiting = []
        peer = served(rig, waiting.append)
        latencies = rig.gateway.master_endpoint.latencies
        serial = send_request(peer)
        assert sum(latencies.histograms[3].counts) == 0

        waiting.pop().respond(OK)
        await settle()
        assert peer.response(serial) == OK
        assert sum(latencies.histograms[3].counts) == 1
