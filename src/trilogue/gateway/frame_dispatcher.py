# ruff: noqa: ERA001 -- the next line is for the compiler
# cython: annotation_typing=False
"""Gives the frames of one connection to its session, a bounded share in each loop iteration.

All connections together have a bounded time in each iteration, too (docs/decisions/0144).

`Stream` owns one and does what is rare: it pauses and resumes reading, and ends connections that
failed. Compiled (frame_dispatcher.pxd adds the types), since it runs once per receive and once per
frame; uncompiled it is plain Python. See docs/decisions/0061.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from trilogue.gateway.transport_writer import TransportWriter

if TYPE_CHECKING:
    from collections.abc import Callable

    from trilogue.wire.frames import Frames


ITERATION_S: Final = 0.002
"""How long connections may use the loop in one iteration, together."""
SHORT_S: Final = 0.001
"""An iteration that is shorter than this is not watched: watching costs a callback."""
LARGE_BYTES: Final = 64 << 10
"""A frame above this may be work of many milliseconds."""


class IterationBudget:
    """The time that all connections of one loop may use in one iteration.

    What is more waits, in order, for the iterations after it: timers and the commits of the journal
    are served in between. Large frames wait behind all else, and one of them is processed in each
    iteration at least: so a small request waits for one of them, not for those of all
    connections. Without `open` there is no limit.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._call_soon: Callable[[Callable[[], None]], object] | None = None
        self._since_s = 0.0  # the start of this iteration, or when its watch began
        self._is_watched = False  # whether `_begin_iteration` is scheduled
        self._waiting: deque[Callable[[], None]] = deque()
        self._large: deque[Callable[[], None]] = deque()
        self._is_turn_of_large = False

    def open(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        """Limit the iterations of the loop that this `call_soon` belongs to."""
        self._call_soon = call_soon

    def is_used_up(self) -> bool:
        """Whether connections used their time in this iteration."""
        if self._call_soon is None:
            return False
        now_s = self._clock()
        used_s = now_s - self._since_s
        if self._is_watched:
            return used_s > ITERATION_S
        if used_s > SHORT_S:
            self._since_s = now_s
            self._watch()
        return False

    def defer(self, call: Callable[[], None]) -> None:
        """Call in a later iteration, after all that were deferred before."""
        self._waiting.append(call)
        if not self._is_watched:
            self._since_s = self._clock()
            self._watch()

    def defer_large(self, call: Callable[[], None]) -> None:
        """Call in a later iteration, behind what `defer` has and all large ones before."""
        self._large.append(call)
        if not self._is_watched:
            self._since_s = self._clock()
            self._watch()

    def admits_large(self) -> bool:
        """Whether a large frame may be processed now: where nothing else waits, or in its turn."""
        if self._call_soon is None or self._is_turn_of_large:
            return True
        return not self._waiting and not self._large and not self.is_used_up()

    def _watch(self) -> None:
        assert self._call_soon is not None
        self._is_watched = True
        self._call_soon(self._begin_iteration)

    def _begin_iteration(self) -> None:
        """Run what was deferred until now, as far as the time allows."""
        self._since_s = now_s = self._clock()
        self._is_watched = False
        waiting = self._waiting
        count = len(waiting)
        try:
            while count > 0 and now_s - self._since_s <= ITERATION_S:
                count -= 1
                waiting.popleft()()
                now_s = self._clock()
            if self._large:
                now_s = self._process_large(now_s)
        finally:
            self._is_turn_of_large = False
            is_late = now_s - self._since_s > SHORT_S
            if not self._is_watched and (waiting or self._large or is_late):
                self._watch()

    def _process_large(self, now_s: float) -> float:
        """Process one large frame, and more as far as the time allows; return the time."""
        count = len(self._large)
        self._is_turn_of_large = True
        while True:
            count -= 1
            self._large.popleft()()
            now_s = self._clock()
            if count <= 0 or now_s - self._since_s > ITERATION_S:
                return now_s


class ReadControl(Protocol):
    """The stream, for its dispatcher."""

    def after_dispatch(self, has_rest: bool) -> None:
        """An iteration ended with frames or bytes left, or while the transport is not read."""

    def after_large(self) -> None:
        """A large frame is left until it is its turn."""

    def buffer_full(self) -> None:
        """The receive buffer may have to grow for the rest of a frame."""

    def fail(self, problem: Exception) -> None:
        """End the connection: the session raised this, and it is being handled."""


class FrameDispatcher:
    """Received bytes in, whole frames out to a session."""

    def __init__(
        self,
        control: ReadControl,
        writer: TransportWriter,
        frames: Frames,
        *,
        take_frame: Callable[[memoryview], bool],
        end_iteration: Callable[[], None],
        iteration_frames: int,
        iteration_bytes: int,
        budget: IterationBudget,
    ) -> None:
        self.frames = frames
        self.stops = 0  # bits: why no frames are taken
        self.receives = 0
        self.frames_taken = 0
        self.is_reading = True
        self.is_scheduled = False  # whether the rest is dispatched in a later iteration
        self.held: memoryview | None = None  # a frame that the session did not take
        self._control = control
        self._writer = writer
        self._next_frame = frames.next
        self._take_frame = take_frame
        self._end_iteration = end_iteration
        self._is_large = False  # whether a large frame waits for its turn
        self._iteration_frames = iteration_frames
        self._iteration_bytes = iteration_bytes
        self._budget = budget

    def close(self) -> None:
        """Give no more frames, and refer to nothing of the connection: it is closed."""
        self.held = None
        self.frames.close()
        self._control, self._take_frame, self._end_iteration = _CLOSED, _refuse_frame, _end

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return memory to receive into."""
        del sizehint
        return self.frames.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Give the frames that `nbytes` more received bytes complete to the session."""
        self.frames.received(nbytes)
        self.receives += 1
        if not self.stops and not self.is_scheduled:
            if self._budget.is_used_up():
                self._control.after_dispatch(True)
            else:
                self.dispatch()

    def dispatch(self) -> None:
        """Give frames until none is left, the share is used up, or something stops the stream."""
        self.is_scheduled = False
        if self._writer.transport is None:
            return
        try:
            has_rest = self._give_frames()
            self._end_iteration()
        except Exception as problem:  # noqa: BLE001 -- it is logged there
            self._control.fail(problem)
        else:
            if self._is_large:
                self._is_large = False
                self._control.after_large()
            elif has_rest or not self.is_reading:
                self._control.after_dispatch(has_rest)
            elif self.frames.is_full():
                self._control.buffer_full()

    def _give_frames(self) -> bool:
        """Return whether the rest waits for another iteration: frames, or bytes still to be read.

        The transport reads up to 32 times in an iteration as long as more bytes have come: a
        connection that used up its share has to stop it, or a producer of large batches would get
        32 shares. A frame may be work of milliseconds, so it looks at the clock after each four.
        """
        frames_left, bytes_left = self._iteration_frames, self._iteration_bytes
        frame, self.held = self.held, None
        while True:
            if frame is None:
                frame = self._next_frame()
                if frame is None:
                    return bytes_left <= 0
                is_checked = frames_left & 3 == 0 and frames_left < self._iteration_frames
                if is_checked and self._budget.is_used_up():
                    self.held = frame
                    return True
            if len(frame) > LARGE_BYTES and not self._budget.admits_large():
                self.held = frame
                self._is_large = True
                return True
            if self.stops or frames_left <= 0 or bytes_left <= 0 or not self._take_frame(frame):
                self.held = frame
                return True
            self.frames_taken += 1
            frames_left -= 1
            bytes_left -= len(frame)
            frame = None


class _ClosedControl:
    """In place of the stream of a closed connection."""

    def after_dispatch(self, has_rest: bool) -> None:
        """Do nothing."""

    def after_large(self) -> None:
        """Do nothing."""

    def buffer_full(self) -> None:
        """Do nothing."""

    def fail(self, problem: Exception) -> None:
        """Do nothing."""


def _refuse_frame(_frame: memoryview) -> bool:
    return False


def _end() -> None:
    """Do nothing."""


_CLOSED = _ClosedControl()
