"""Work of consumer groups in steps: a little of it at once, the rest in turns of the loop.

Looking through all topics, or making a target for a thousand members, takes longer than a loop that
serves others may stand still. Such work is a generator that yields after about `STEP` names,
members or partitions, which is a millisecond or so. `StepScheduler` runs the first steps at once:
small groups never notice. What is left then waits with the work of other groups, and each turn runs
some steps of the first in the queue, which goes to its end. After larger work the next one takes a
single step at once for a while: many groups in turn would use the whole loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from trilogue.broker.groups.classic.members import Timers
from trilogue.log.steps import Steps

STEP = 1_000
STEPS_AT_ONCE = 10  # when no other work waits; else one
STEPS_AT_A_TIME = 5
PAUSE_S = 0.01  # between two turns, which take 5 ms or so
REST_S_A_STEP = 0.01  # in which no other work takes many steps at once


class SteppedTask:
    """Some work on its way. `then` hears how many steps it took."""

    def __init__(self, steps: Steps[None], then: Callable[[int], None]) -> None:
        self._steps = steps
        self._then = then
        self.taken = 0
        self.ended = False

    def run_steps(self, steps_max: int) -> None:
        """Take so many steps, or those that are left."""
        for _ in range(steps_max):
            try:
                next(self._steps)
            except StopIteration:
                self.ended = True
                self._then(self.taken)
                return
            except BaseException:
                self.ended = True  # a mistake, which must not keep its group waiting for ever
                raise
            self.taken += 1

    def stop(self) -> None:
        """Take no more steps; `then` is not called."""
        self.ended = True
        self._steps.close()


class StepScheduler:
    """The work of all consumer groups of a node that is not done at once."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._queue: deque[SteppedTask] = deque()
        self._awaited = False  # whether a turn is to come
        self._is_resting = False  # there was larger work a moment ago
        self.at_once = STEPS_AT_ONCE

    def __len__(self) -> int:
        """How much work waits."""
        return len(self._queue)

    def start(self, steps: Steps[None], then: Callable[[int], None]) -> SteppedTask:
        """Begin with some work; it may have ended when this returns."""
        work = SteppedTask(steps, then)
        work.run_steps(1 if self._queue or self._is_resting else self.at_once)
        if not work.ended:
            self._queue.append(work)
            self._wait()
        elif work.taken > 1 and not self._is_resting:
            self._is_resting = True
            self._timers.call_later(REST_S_A_STEP * work.taken, self._end_rest)
        return work

    def _end_rest(self) -> None:
        self._is_resting = False

    def _wait(self) -> None:
        if not self._awaited:
            self._awaited = True
            self._timers.call_later(PAUSE_S, self._turn)

    def _turn(self) -> None:
        self._awaited = False
        while self._queue and self._queue[0].ended:
            self._queue.popleft()
        if self._queue:
            work = self._queue[0]
            self._queue.rotate(-1)
            self._wait()
            work.run_steps(STEPS_AT_A_TIME)
