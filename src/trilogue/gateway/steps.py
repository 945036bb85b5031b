"""Long work on the loop: in steps, between which other connections are served.

Of all requests that work in steps one takes its next step in a loop iteration, in turns. Otherwise
an iteration would be as long as there are such requests, and a client with a small request would
wait for all of them: 200 clients that describe 2,000 topics each held it up for 20 s. Where one
client may have thousands of such requests at a time, they are one group, and groups take turns.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Generator, Hashable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from trilogue.broker.promise import Promise
from trilogue.log.steps import Steps

T = TypeVar("T")


class StepTurns:
    """The turns of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._is_taken = False  # a step runs in the next iteration
        self._waiting: dict[Hashable, deque[asyncio.Future[None]]] = {}  # by group, in turn

    async def wait(self, group: Hashable) -> None:
        """Return in a later loop iteration, when it is the caller's turn."""
        if self._is_taken:
            turn = self._loop.create_future()
            self._waiting.setdefault(group, deque()).append(turn)
            await turn
        else:
            self._is_taken = True
            self._loop.call_soon(self._pass_on)
            await asyncio.sleep(0)

    def _pass_on(self) -> None:
        """Let the next one that waits take its step in the next iteration."""
        while self._waiting:
            group = next(iter(self._waiting))
            turns = self._waiting.pop(group)
            turn = turns.popleft()
            if turns:
                self._waiting[group] = turns  # behind the other groups
            if not turn.done():  # its task may be cancelled
                turn.set_result(None)
                self._loop.call_soon(self._pass_on)
                return
        self._is_taken = False


_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, StepTurns] = WeakKeyDictionary()


async def next_step(group: Hashable = None) -> None:
    """Wait between two steps of long work: until others were served, and it is this one's turn.

    Of the requests of one group one has a turn, then those of the others.
    """
    loop = asyncio.get_running_loop()
    turns = _turns.get(loop)
    if turns is None:
        turns = _turns[loop] = StepTurns(loop)
    await turns.wait(group)


async def wait_until_settled(promise: Promise[Any]) -> None:
    """Return when a promise has a result or an error."""
    if promise.done:
        return
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    promise.then(lambda _: None if future.done() else future.set_result(None))
    await future


def begin_steps(steps: Steps[T]) -> T | Coroutine[Any, Any, T]:
    """Run the first step; return the result, or a coroutine for the rest of the steps."""
    try:
        next(steps)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    return _run_rest(steps)


async def _run_rest(steps: Steps[T]) -> T:
    await next_step()
    return await run_in_turns(steps)


async def run_in_turns(steps: Steps[T]) -> T:
    """Run all steps of a request, one per turn, and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        await next_step()


def start_at_once(work: Coroutine[Any, Any, None]) -> Coroutine[Any, Any, None] | None:
    """Run a request up to where it has to wait; return a coroutine for the rest, if there is one.

    A task would run that in a later iteration, outside of the time that requests share. The request
    must not look at its task before it waits, as `asyncio.timeout` does.
    """
    try:
        awaited = work.send(None)
    except StopIteration:
        return None
    return _run_started(_StartedWork(work, awaited))


async def _run_started(work: _StartedWork) -> None:
    await work


class _StartedWork:
    """A coroutine that waits already: its task waits for the same, and goes on with it."""

    def __init__(self, work: Coroutine[Any, Any, None], awaited: object) -> None:
        self._work = work
        self._awaited = awaited

    def __await__(self) -> Generator[object, Any, None]:
        awaited = self._awaited
        try:
            while True:
                try:
                    value = yield awaited
                except BaseException as problem:  # noqa: BLE001 -- it is for the coroutine
                    awaited = self._work.throw(problem)
                else:
                    awaited = self._work.send(value)
        except StopIteration:
            return


async def run_steps(steps: Steps[T]) -> T:
    """Run all steps of the node's own work, one per loop iteration, and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        await asyncio.sleep(0)
