"""What loads are made of: threads that work on a server until they are told to stop."""

from __future__ import annotations

import asyncio
import threading

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
    """Writes into a ledger what a producer on the loop was told of each message."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self.ledger = ledger
        self.waiting: set[asyncio.Future[object]] = set()

    def sent(self, origin: Origin, future: asyncio.Future[object]) -> None:
        """The future will say where the message lies."""
        self.waiting.add(future)
        future.add_done_callback(lambda done: self._told(origin, done))

    async def hear_of_all(self) -> None:
        """Wait until nothing is under way any more."""
        if self.waiting:
            await asyncio.wait(self.waiting, timeout=PATIENCE)

    def refused(self, problem: BaseException) -> None:
        """What should not happen has: the verdict will say it."""
        self.ledger.fail(repr(problem))

    def _told(self, origin: Origin, done: asyncio.Future[object]) -> None:
        self.waiting.discard(done)
        problem = done.exception()
        if problem is None:
            self.ledger.ack(origin, done.result().offset)
        else:
            self.refused(problem)
