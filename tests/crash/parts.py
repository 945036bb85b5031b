"""The base classes of loads: threads that work on a server until `stop`."""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback

from tests.crash.ledger import Ledger, Origin

PATIENCE = 120.0


class Part(threading.Thread):
    """One thread; `run` looks at `stopping`."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.stopping = threading.Event()

    def stop(self) -> None:
        self.stopping.set()
        self.join(PATIENCE)
        assert not self.is_alive(), (
            f"{type(self).__name__} did not end within {PATIENCE:g} s; it is at\n"
            + self.show_stack()
        )

    def show_stack(self) -> str:
        frame = sys._current_frames().get(self.ident or 0)
        return "".join(traceback.format_stack(frame)) if frame else "its end"


class LoopPart(Part):
    """One thread with a loop of its own. `broken`: what ended it before its time."""

    def __init__(self) -> None:
        super().__init__()
        self.broken: BaseException | None = None

    def run(self) -> None:
        try:
            asyncio.run(self.work())
        except BaseException as problem:
            self.broken = problem
            raise

    async def work(self) -> None:
        raise NotImplementedError


class LoopLoad(LoopPart):
    """Records in a ledger the ack or the error of each message of a producer on the loop."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self.ledger = ledger
        self.waiting: set[asyncio.Future[object]] = set()

    def sent(self, origin: Origin, future: asyncio.Future[object]) -> None:
        """Record the ack when the future has the offset of the message."""
        self.waiting.add(future)
        future.add_done_callback(lambda done: self._record_result(origin, done))

    async def watch_all(self) -> None:
        """Wait until nothing is under way any more."""
        if self.waiting:
            _, pending = await asyncio.wait(self.waiting, timeout=PATIENCE)
            assert not pending, f"{len(pending)} sends without an answer"

    def refused(self, problem: BaseException) -> None:
        """Record a refused message, which makes the verdict bad."""
        self.ledger.fail(repr(problem))

    def _record_result(self, origin: Origin, done: asyncio.Future[object]) -> None:
        self.waiting.discard(done)
        problem = done.exception()
        if problem is None:
            self.ledger.ack(origin, done.result().offset)
        else:
            self.refused(problem)
