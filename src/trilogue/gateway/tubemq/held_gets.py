"""Gets at the end of a partition's data, held until a message arrives or their time is over.

A real broker answers them at once, and the client waits 400 ms before its next get of that
partition: half of that is added to the latency of a message. Here the response waits for the
message, for at most `hold_s`, well below the request's own timeout; then it is the 404 of a real
broker.

A client may have fewer threads than partitions. While it waits for one partition, messages may
arrive for another one that it has no get for. Then the held get is answered at once, with success
and without messages, as a real broker answers when filters let nothing through. The client puts
that partition at the end of its queue, without a pause, and reaches the other one in its turn.
Such a response is called a nudge. A nudge may be in vain: the application may still process earlier
messages of the other partition, or the client may pause after a 404. So nudges come in rounds, of
as many as the client has partitions; the first round begins as soon as the client may get that
partition, and the pauses between rounds grow until it does.

A push consumer that shuts down or rebalances waits for its gets first, up to 3 s, without notice.
Its application never sees responses without messages, so its gets end after one second with such a
response instead of a 404, and it comes again at once.

With several brokers the messages may be at another one, which cannot end a get that is held here.
So a consumer's gets at a broker are held for `TURN_S` in all, and then end with success and without
messages, too: its threads go round its brokers. Where it receives nothing for `hold_s`, one of them
ends with 404, as with one broker (docs/decisions/0133-gets-go-round-the-brokers.md).

An append costs nothing here, except for the partitions that received messages: each registration
has at most one callback at its partition's log, which stays there between gets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from trilogue.broker.quotas.topic_rates import SubscriptionLimiter
from trilogue.broker.tubemq.registrations import Registration, TubeConsumer

TIMEOUT_S: Final = 10.0  # of a request that states none: the clients' default
TIMEOUT_SHARE: Final = 0.8  # of a request's timeout: it is never held for longer
PAUSE_S: Final = 0.4  # that clients make for a partition after a 404, by default
WORK_S: Final = 0.003  # that a client has to process messages before it is nudged for more
ROUND_S: Final = 0.05  # between the first two rounds of nudges
ROUND_MAX_S: Final = 5.0
PUSH_S: Final = 1.0  # that a push consumer's get is held for, at most
TURN_S: Final = 0.05  # at one of several brokers, for all partitions that a consumer has there
PUSH: Final = "-Push-"  # a part of the client id of push consumers


class GetResponder(Protocol):
    """The request of a held get: how it is answered. Each held get ends with one of these calls."""

    def attach(self, held_get: HeldGet) -> None:
        """Register the held get with the connection; called first, once."""

    def serve(self, held_get: HeldGet) -> None:
        """Answer with what arrived for the partition."""

    def respond_empty(self, held_get: HeldGet) -> None:
        """Answer with success and without messages."""

    def respond_timeout(self, held_get: HeldGet) -> None:
        """Answer that the end of the data was reached (404), or without messages in a turn."""

    def respond_unregistered(self, held_get: HeldGet) -> None:
        """Answer that the registration was removed (411)."""


class HeldGet:
    """A get that is held; a connection's `HeldResponse`."""

    __slots__ = (
        "gets",
        "is_early",
        "is_over",
        "is_turn",
        "manual_commit",
        "registration",
        "responder",
        "timer",
    )

    def __init__(
        self,
        gets: HeldGets,
        responder: GetResponder,
        registration: Registration,
        *,
        manual_commit: bool,
    ) -> None:
        self.gets = gets
        self.responder = responder
        self.registration = registration
        self.manual_commit = manual_commit
        self.timer: asyncio.TimerHandle | None = None
        self.is_over = False
        self.is_early = False  # it ends before its time: with 404, also for a push consumer
        self.is_turn = False  # it ends so that the client gets from another broker

    def end_early(self) -> None:
        """The server drains: no message will arrive any more."""
        self.gets.end_early(self)

    def connection_closed(self) -> None:
        """Release the get without a response."""
        self.gets.detach(self)


class GetState:
    """The state of a registration between its gets."""

    __slots__ = ("busy", "held_get", "idle_s", "limiter", "nudges", "round_s", "unwatch")

    def __init__(self) -> None:
        self.held_get: HeldGet | None = None
        self.busy = False  # a read for it runs in the executor
        self.unwatch: Callable[[], None] | None = None  # removes its callback at the log
        self.idle_s = 0.0  # when the client may get the partition again: no nudge before
        self.nudges = 0  # in this round
        self.round_s = ROUND_S
        self.limiter = SubscriptionLimiter()

    def start_round(self, idle_s: float) -> None:
        """Begin the first round of nudges, at the time when the client may get again."""
        self.idle_s = idle_s
        self.nudges = 0
        self.round_s = ROUND_S

    def next_round(self, now_s: float) -> None:
        """Begin another round after one that was in vain, with a longer pause."""
        self.idle_s = now_s + self.round_s
        self.nudges = 0
        self.round_s = min(2 * self.round_s, ROUND_MAX_S)


class ConsumerGetState:
    """The state of a consumer: its held gets, and partitions that may have new messages."""

    __slots__ = ("end_s", "fresh", "held", "quiet_until_s", "timer", "timer_s")

    def __init__(self) -> None:
        self.held: dict[Registration, HeldGet] = {}
        self.fresh: dict[Registration, None] = {}  # without a callback at the log
        self.timer: asyncio.TimerHandle | None = None
        self.timer_s = 0.0
        self.quiet_until_s = 0.0  # until then no get is held
        self.end_s = 0.0  # with several brokers: when it is told of the end of the data


class HeldGets:
    """All held gets of a gateway."""

    def __init__(self, hold_s: float) -> None:
        self.hold_s = hold_s
        self.nudged = 0

    # ---- called by handlers

    def begin_get(self, registration: Registration) -> GetState:
        """Start a get of a partition; one of it that is still held ends with 404."""
        state = get_state(registration)
        state.start_round(0.0)
        if state.held_get is not None:
            self.end_early(state.held_get)
        return state

    def response_sent(
        self, registration: Registration, loop: asyncio.AbstractEventLoop, pause_s: float = 0.0
    ) -> None:
        """Note that a partition was registered, a get answered, or a position confirmed.

        The client gets the partition again in `pause_s`, unless it works on another one.
        """
        state, consumer = get_state(registration), registration.consumer
        state.start_round(loop.time() + pause_s)
        consumer_state = consumer_get_state(consumer)
        consumer_state.fresh[registration] = None
        if consumer_state.held:
            self._check_fresh(consumer, consumer_state, loop)

    def messages_sent(self, registration: Registration, loop: asyncio.AbstractEventLoop) -> None:
        """Note that a get was answered with messages."""
        consumer_get_state(registration.consumer).end_s = 0.0
        self.response_sent(registration, loop, WORK_S)

    def end_sent(self, registration: Registration, loop: asyncio.AbstractEventLoop) -> None:
        """Note that a get was answered with 404."""
        consumer_get_state(registration.consumer).end_s = 0.0
        self.response_sent(registration, loop, PAUSE_S)

    def hold(
        self,
        responder: GetResponder,
        registration: Registration,
        loop: asyncio.AbstractEventLoop,
        *,
        limit_s: float,
        manual_commit: bool,
        in_turns: bool = False,
    ) -> bool:
        """Hold a get for `limit_s` at most; False where it must be answered now.

        It may already be answered when this returns True. `in_turns` where the consumer may have
        partitions of other brokers.
        """
        consumer_state = consumer_get_state(registration.consumer)
        if limit_s <= 0.0 or loop.time() < consumer_state.quiet_until_s:
            return False
        if in_turns:
            consumer_state.end_s = consumer_state.end_s or loop.time() + self.hold_s
            share = (len(consumer_state.held) + 1) / max(1, len(registration.consumer.readers))
            limit_s = min(limit_s, TURN_S * min(1.0, share))
        held_get = HeldGet(self, responder, registration, manual_commit=manual_commit)
        held_get.is_turn = in_turns
        get_state(registration).held_get = consumer_state.held[registration] = held_get
        consumer_state.fresh[registration] = None
        responder.attach(held_get)
        held_get.timer = loop.call_later(limit_s, self._limit_reached, held_get, loop)
        self._check_fresh(registration.consumer, consumer_state, loop)
        return True

    def limit_s(self, client_id: str, timeout_ms: int, waited_s: float) -> float:
        """Return how long a get may be held that arrived `waited_s` ago, in seconds."""
        timeout_s = timeout_ms / 1000 if timeout_ms > 0 else TIMEOUT_S
        most_s = min(self.hold_s, PUSH_S) if PUSH in client_id else self.hold_s
        return min(most_s, timeout_s * TIMEOUT_SHARE - waited_s)

    # ---- how held gets end

    def end_early(self, held_get: HeldGet) -> None:
        """End a get before its time."""
        held_get.is_early = True
        held_get.is_turn = False
        self._time_out(held_get)

    def _limit_reached(self, held_get: HeldGet, loop: asyncio.AbstractEventLoop) -> None:
        if held_get.is_turn:
            end_s = consumer_get_state(held_get.registration.consumer).end_s
            held_get.is_turn = loop.time() < end_s
        self._time_out(held_get)

    def _time_out(self, held_get: HeldGet) -> None:
        """End a get for which no message arrived in time."""
        if self.detach(held_get):
            held_get.responder.respond_timeout(held_get)

    def detach(self, held_get: HeldGet) -> bool:
        """Release a held get without a response; False where that was done before."""
        if held_get.is_over:
            return False
        held_get.is_over = True
        if held_get.timer is not None:
            held_get.timer.cancel()
        registration = held_get.registration
        get_state(registration).held_get = None
        consumer_get_state(registration.consumer).held.pop(registration, None)
        return True

    def release(self, consumer: TubeConsumer, quiet_until_s: float) -> None:
        """Answer all held gets of a consumer, and hold none of it until then.

        For a consumer that is about to give up partitions: it waits for its gets first.
        """
        consumer_state = consumer_get_state(consumer)
        consumer_state.quiet_until_s = quiet_until_s
        for held_get in list(consumer_state.held.values()):
            self.end_early(held_get)

    def registration_removed(self, registration: Registration) -> None:
        """Answer the held get of a registration that was removed, and forget its state."""
        state = get_state(registration)
        consumer_state = consumer_get_state(registration.consumer)
        if state.unwatch is not None:
            state.unwatch()
            state.unwatch = None
        consumer_state.fresh.pop(registration, None)
        held_get = state.held_get
        if held_get is not None:
            self.detach(held_get)
        if not registration.consumer.readers and consumer_state.timer is not None:
            consumer_state.timer.cancel()
            consumer_state.timer = None
        if held_get is not None:
            held_get.responder.respond_unregistered(held_get)

    def position_moved(self, registration: Registration) -> None:
        """Answer the held get of a registration whose position another request moved."""
        held_get = get_state(registration).held_get
        if held_get is not None and self.detach(held_get):
            held_get.responder.serve(held_get)

    # ---- what ends them

    def _data_arrived(self, registration: Registration, loop: asyncio.AbstractEventLoop) -> None:
        """Messages became durable in a partition."""
        state, consumer = get_state(registration), registration.consumer
        consumer_state = consumer_get_state(consumer)
        state.unwatch = None
        if registration.is_gone:
            return
        consumer_state.fresh[registration] = None
        held_get = state.held_get
        if held_get is None:
            if consumer_state.held:
                self._check_fresh(consumer, consumer_state, loop)
        elif has_unread(registration):
            self.detach(held_get)
            held_get.responder.serve(held_get)
        else:  # an open transaction, or its marker
            self._watch(registration, state, consumer_state, loop)

    def _watch(
        self,
        registration: Registration,
        state: GetState,
        consumer_state: ConsumerGetState,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        consumer_state.fresh.pop(registration, None)
        if state.unwatch is None:
            log = registration.partition.log
            state.unwatch = log.wait(lambda: self._data_arrived(registration, loop))

    def _check_fresh(
        self,
        consumer: TubeConsumer,
        consumer_state: ConsumerGetState,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """Watch partitions without a callback; nudge for those that the client has no get for."""
        now_s = loop.time()
        next_s = 0.0
        for registration in list(consumer_state.fresh):
            state = get_state(registration)
            if not has_unread(registration):
                self._watch(registration, state, consumer_state, loop)
            elif state.held_get is not None:  # its last messages were taken back
                self.position_moved(registration)
                return
            elif not state.busy:
                if state.nudges >= len(consumer.readers):  # a round was in vain
                    state.next_round(now_s)
                if now_s < state.idle_s:
                    next_s = min(next_s or state.idle_s, state.idle_s)
                else:
                    state.nudges += 1
                    self._nudge(consumer_state)
                    return
        if next_s:
            self._check_fresh_at(consumer, consumer_state, loop, next_s)

    def _nudge(self, consumer_state: ConsumerGetState) -> None:
        held_get = next(iter(consumer_state.held.values()), None)
        if held_get is not None and self.detach(held_get):
            self.nudged += 1
            held_get.responder.respond_empty(held_get)

    def _check_fresh_at(
        self,
        consumer: TubeConsumer,
        consumer_state: ConsumerGetState,
        loop: asyncio.AbstractEventLoop,
        at_s: float,
    ) -> None:
        if consumer_state.timer is not None:
            if consumer_state.timer_s <= at_s:
                return
            consumer_state.timer.cancel()

        def check() -> None:
            consumer_state.timer = None
            if consumer_state.held:
                self._check_fresh(consumer, consumer_state, loop)

        consumer_state.timer_s = at_s
        consumer_state.timer = loop.call_at(at_s, check)


def has_unread(registration: Registration) -> bool:
    """Return whether there are offsets behind the last ones that were delivered."""
    return registration.next_offset < registration.partition.log.stable_end


def get_state(registration: Registration) -> GetState:
    """Return the state that this gateway keeps of a registration."""
    state = registration.get_state
    if state is None:
        state = registration.get_state = GetState()
    assert isinstance(state, GetState)
    return state


def consumer_get_state(consumer: TubeConsumer) -> ConsumerGetState:
    """Return the state that this gateway keeps of a consumer."""
    state = consumer.wakes
    if state is None:
        state = consumer.wakes = ConsumerGetState()
    assert isinstance(state, ConsumerGetState)
    return state
