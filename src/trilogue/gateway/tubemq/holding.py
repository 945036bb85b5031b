"""Gets at the end of data, held until there is something to say.

A real broker answers them at once, and the client sleeps 400 ms before it asks for that partition
again: half of that is what a message waits. Here the answer waits for the message: at most
`hold_s`, well below the request's own timeout, and then it is the 404 of a real broker.

A client may have fewer threads than partitions. While it waits for one, something may arrive for
another that it does not ask for. Then the held get is answered at once, with success and without a
message (as a real broker answers when filters let nothing through): the client takes that partition
up again at the end of its queue, without any pause, and comes to the other one in its turn. Such
answers are called nudges. They may be in vain: the application may still be at work on what it had
of that partition, or the client in its pause after a 404. So they come in rounds, of as many as the
client has partitions; the first one as soon as the client may ask, the next ones later and later,
until the partition is asked for.

A push consumer that shuts down or rebalances waits for its gets first, up to 3 s, and tells nobody
so. Its application never sees answers without messages, so it gets one of those each second
instead of a 404 at the end: it comes again at once.

Nothing here costs anything per append but for those whose partition got something: each reader has
at most one wish at its partition's log, which stays there from one get to the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from trilogue.broker.readings import Consumer, Reader

if TYPE_CHECKING:
    from trilogue.gateway.tubemq.call import Call

TIMEOUT_S: Final = 10.0  # of a request that does not say: what clients have by default
SHARE: Final = 0.8  # of a request's timeout: it is never held for longer
PAUSE_S: Final = 0.4  # that clients make for a partition after a 404, by default
WORK_S: Final = 0.003  # that a client is given for messages, before it is nudged for more
ROUND_S: Final = 0.05  # between the first two rounds of nudges
ROUND_MAX_S: Final = 5.0
PUSH_S: Final = 1.0  # that a push consumer's get is held for, at most
PUSH: Final = "-Push-"  # in a client id (wire fact, section 3)


class Wish:
    """A get that is held; a connection's `Held`."""

    __slots__ = ("call", "holds", "is_hurried", "is_over", "manual", "reader", "timer")

    def __init__(self, holds: Holds, call: Call, reader: Reader, *, manual: bool) -> None:
        self.holds = holds
        self.call = call
        self.reader = reader
        self.manual = manual
        self.timer: asyncio.TimerHandle | None = None
        self.is_over = False
        self.is_hurried = False  # it ends before its time: 404, whoever asks

    def hurry(self) -> None:
        """The server drains: nothing will arrive any more."""
        self.holds.hurry(self)

    def gone(self) -> None:
        """The connection is closed."""
        self.holds.forget(self)


class Turn:
    """What is kept of a reader between its gets."""

    __slots__ = ("busy", "idle_s", "nudges", "round_s", "unwatch", "wish")

    def __init__(self) -> None:
        self.wish: Wish | None = None
        self.busy = False  # something is read for it in the executor
        self.unwatch: Callable[[], None] | None = None  # its wish at the log
        self.idle_s = 0.0  # when its client may ask for it again: there is no use in a nudge before
        self.nudges = 0  # in this round
        self.round_s = ROUND_S

    def rest(self, until_s: float) -> None:
        """It was answered; a new round begins when its client may ask again."""
        self.idle_s = until_s
        self.nudges = 0
        self.round_s = ROUND_S

    def rest_longer(self, now_s: float) -> None:
        """A round of nudges was in vain."""
        self.idle_s = now_s + self.round_s
        self.nudges = 0
        self.round_s = min(2 * self.round_s, ROUND_MAX_S)


class Wakes:
    """What is kept of a consumer: its held gets, partitions where something may have arrived."""

    __slots__ = ("fresh", "held", "quiet_until_s", "timer", "timer_s")

    def __init__(self) -> None:
        self.held: dict[Reader, Wish] = {}
        self.fresh: dict[Reader, None] = {}  # nobody watches these
        self.timer: asyncio.TimerHandle | None = None
        self.timer_s = 0.0
        self.quiet_until_s = 0.0


class Holds:
    """All held gets of a door.

    `serve` is called with a wish that is over because something arrived for its partition, and
    must answer it; `empty` must answer with success and no messages, `ended` with 404.
    """

    def __init__(
        self,
        hold_s: float,
        *,
        serve: Callable[[Wish], None],
        empty: Callable[[Wish], None],
        ended: Callable[[Wish], None],
    ) -> None:
        self.hold_s = hold_s
        self.nudged = 0
        self._serve = serve
        self._empty = empty
        self._ended = ended

    # ---- what gets do

    def registered(self, reader: Reader, loop: asyncio.AbstractEventLoop) -> None:
        """A client reads one partition more."""
        self.answered(reader, loop, 0.0)

    def asked(self, reader: Reader) -> Turn:
        """A partition is asked for: a get of it that is still held is over."""
        turn = turn_of(reader)
        turn.rest(0.0)
        if turn.wish is not None:
            self.hurry(turn.wish)
        return turn

    def answered(self, reader: Reader, loop: asyncio.AbstractEventLoop, pause_s: float) -> None:
        """It was answered, or what was handed out is confirmed.

        In `pause_s` its client will ask again, unless it is at work on another partition.
        """
        turn, consumer = turn_of(reader), reader.consumer
        turn.rest(loop.time() + pause_s)
        wakes = wakes_of(consumer)
        wakes.fresh[reader] = None
        if wakes.held:
            self._look(consumer, wakes, loop)

    def hold(self, call: Call, reader: Reader, *, manual: bool) -> bool:
        """Hold a get at the end of its partition's data, or say that it must be answered now.

        It may be answered in here already.
        """
        loop = call.door.loop
        now_s = loop.time()
        wakes = wakes_of(reader.consumer)
        limit_s = self._limit_s(call, now_s)
        if limit_s <= 0.0 or now_s < wakes.quiet_until_s:
            return False
        wish = Wish(self, call, reader, manual=manual)
        turn_of(reader).wish = wakes.held[reader] = wish
        wakes.fresh[reader] = None
        call.hold(wish)
        wish.timer = loop.call_later(limit_s, self.end, wish)
        self._look(reader.consumer, wakes, loop)
        return True

    def _limit_s(self, call: Call, now_s: float) -> float:
        timeout_s = call.timeout_ms / 1000 if call.timeout_ms > 0 else TIMEOUT_S
        left_s = timeout_s * SHARE - (now_s - call.arrived_s)
        most_s = min(self.hold_s, PUSH_S) if PUSH in call.request.clientId else self.hold_s
        return min(most_s, left_s)

    # ---- how they end

    def end(self, wish: Wish) -> None:
        """Nothing arrived in time, or nobody waits any more: 404."""
        if self.forget(wish):
            self._ended(wish)

    def hurry(self, wish: Wish) -> None:
        """End it before its time."""
        wish.is_hurried = True
        self.end(wish)

    def forget(self, wish: Wish) -> bool:
        """Let go of a wish without an answer; False when that was done already."""
        if wish.is_over:
            return False
        wish.is_over = True
        if wish.timer is not None:
            wish.timer.cancel()
        reader = wish.reader
        turn_of(reader).wish = None
        wakes_of(reader.consumer).held.pop(reader, None)
        return True

    def release(self, consumer: Consumer, quiet_until_s: float) -> None:
        """Answer all that is held for a consumer, and hold nothing until then.

        For a consumer that is about to be told to give partitions away: it waits for its gets.
        """
        wakes = wakes_of(consumer)
        wakes.quiet_until_s = quiet_until_s
        for wish in list(wakes.held.values()):
            self.hurry(wish)

    def gone(self, reader: Reader) -> Wish | None:
        """The reader is let go of; its get, if one is held, is for the caller to answer."""
        turn, wakes = turn_of(reader), wakes_of(reader.consumer)
        if turn.unwatch is not None:
            turn.unwatch()
            turn.unwatch = None
        wakes.fresh.pop(reader, None)
        wish = turn.wish
        if wish is not None:
            self.forget(wish)
        if not reader.consumer.readers and wakes.timer is not None:
            wakes.timer.cancel()
            wakes.timer = None
        return wish

    def moved(self, reader: Reader) -> None:
        """Somebody put the reader elsewhere: what it waits for may be there."""
        wish = turn_of(reader).wish
        if wish is not None and self.forget(wish):
            self._serve(wish)

    # ---- what wakes them

    def _arrived(self, reader: Reader, loop: asyncio.AbstractEventLoop) -> None:
        """Something became durable in a partition."""
        turn, consumer = turn_of(reader), reader.consumer
        wakes = wakes_of(consumer)
        turn.unwatch = None
        if reader.is_gone:
            return
        wakes.fresh[reader] = None
        wish = turn.wish
        if wish is None:
            if wakes.held:
                self._look(consumer, wakes, loop)
        elif has_unread(reader):
            self.forget(wish)
            self._serve(wish)
        else:  # an open transaction, or its marker
            self._watch(reader, turn, wakes, loop)

    def _watch(
        self, reader: Reader, turn: Turn, wakes: Wakes, loop: asyncio.AbstractEventLoop
    ) -> None:
        wakes.fresh.pop(reader, None)
        if turn.unwatch is None:
            turn.unwatch = reader.partition.log.wait(lambda: self._arrived(reader, loop))

    def _look(self, consumer: Consumer, wakes: Wakes, loop: asyncio.AbstractEventLoop) -> None:
        """Watch what is watched by nobody; nudge for what the client does not ask for."""
        now_s = loop.time()
        next_s = 0.0
        for reader in list(wakes.fresh):
            turn = turn_of(reader)
            if not has_unread(reader):
                self._watch(reader, turn, wakes, loop)
            elif turn.wish is not None:  # what it had was taken back
                self.moved(reader)
                return
            elif not turn.busy:
                if turn.nudges >= len(consumer.readers):  # a round was in vain
                    turn.rest_longer(now_s)
                if now_s < turn.idle_s:
                    next_s = min(next_s or turn.idle_s, turn.idle_s)
                else:
                    turn.nudges += 1
                    self._nudge(wakes)
                    return
        if next_s:
            self._look_again(consumer, wakes, loop, next_s)

    def _nudge(self, wakes: Wakes) -> None:
        wish = next(iter(wakes.held.values()), None)
        if wish is not None and self.forget(wish):
            self.nudged += 1
            self._empty(wish)

    def _look_again(
        self, consumer: Consumer, wakes: Wakes, loop: asyncio.AbstractEventLoop, at_s: float
    ) -> None:
        if wakes.timer is not None:
            if wakes.timer_s <= at_s:
                return
            wakes.timer.cancel()

        def look() -> None:
            wakes.timer = None
            if wakes.held:
                self._look(consumer, wakes, loop)

        wakes.timer_s = at_s
        wakes.timer = loop.call_at(at_s, look)


def has_unread(reader: Reader) -> bool:
    """Whether there is something behind what a reader had last."""
    return reader.next_offset < reader.partition.log.stable_end


def turn_of(reader: Reader) -> Turn:
    """What is kept of a reader."""
    turn = reader.wish
    if turn is None:
        turn = reader.wish = Turn()
    assert isinstance(turn, Turn)
    return turn


def wakes_of(consumer: Consumer) -> Wakes:
    """What is kept of a consumer."""
    wakes = consumer.wakes
    if wakes is None:
        wakes = consumer.wakes = Wakes()
    assert isinstance(wakes, Wakes)
    return wakes
