"""One server process from start to end: loop, signals, ready file, exit code.

    start ──► serving ──SIGTERM, SIGINT──► draining ──► gone, 0
                 │                            └─second signal──► the same without the last flush
                 └──storage failed──► gone, 3, within two seconds

Whatever hangs, the process ends: a watchdog thread ends it when its time is over. That loses
nothing, since nothing is acknowledged that is not durable; the next start only has more to read.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import resource
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import NoReturn

from trilogue.node import collector
from trilogue.node.errors import STORAGE_FAILED, StartError
from trilogue.node.logs import start_logging
from trilogue.node.settings import Settings

log = logging.getLogger(__name__)

FAILURE_LIMIT_S = 1.0
REFUSALS_LEAVE_S = 0.2
TOO_LATE = 1
WATCHDOG_MARGIN_S = 5.0
TURN_S = 0.001  # how long another thread's Python may keep the loop waiting

Say = Callable[[str], object]


class Orders:
    """What the outside wants of a running server."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.hurry = asyncio.Event()

    def signalled(self, number: signal.Signals) -> None:
        """Take a SIGTERM or SIGINT: the first says stop, the second says now."""
        event = self.hurry if self.stop.is_set() else self.stop
        log.info("server.signal", extra={"signal": number.name, "hurry": event is self.hurry})
        event.set()


def run(settings: Settings, *, say: Say) -> int:
    """Serve until told to stop; the exit code. StartError when it cannot begin."""
    start_logging(level=settings.text("log.level"), form=settings.text("log.format"))
    raise_descriptor_limit()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_live(settings, say))


def raise_descriptor_limit() -> None:
    """Allow as many open files as this process may ask for: each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Choose uvloop's where it is installed."""
    try:
        from uvloop import new_event_loop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = new_event_loop
    return factory


async def _live(settings: Settings, say: Say) -> int:
    from trilogue.node.node import Node  # the rooms below are loaded once logging stands

    orders = Orders()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, orders.signalled, number)
    node = Node(settings)
    loop.set_exception_handler(lambda _, context: _escaped(node.fail, context))
    await node.start()
    for door, address in node.addresses.items():
        say(f"{door:13} {address}")
    try:
        with ready_file(settings.text("ready-file"), node.addresses):
            sys.setswitchinterval(TURN_S)
            collector.take_over()
            collecting = asyncio.create_task(collector.collect_for_ever())
            await _first(orders.stop.wait(), node.failed.wait())
            collecting.cancel()
    finally:
        limit_s = settings.seconds("shutdown.limit")
        with watchdog(limit_s + WATCHDOG_MARGIN_S, TOO_LATE):
            if not node.failed.is_set():
                await node.drain(orders.hurry, limit_s)
            if not node.failed.is_set():
                await node.close()
            if node.failed.is_set():  # perhaps by the last words that closing writes
                await _end_failed(node.failure)
    log.info("server.stopped")
    return 0


async def _end_failed(failure: BaseException | None) -> NoReturn:
    """Let the refusals leave, then go without asking anyone: a thread may hang in a dead disk."""
    with watchdog(FAILURE_LIMIT_S, STORAGE_FAILED):
        sys.stderr.write(f"trilogue: stopped: {failure}\n")
        sys.stderr.flush()
        await asyncio.sleep(REFUSALS_LEAVE_S)
        os._exit(STORAGE_FAILED)


@contextlib.contextmanager
def ready_file(path: str, addresses: Mapping[str, str]) -> Iterator[None]:
    """Say that every door answers, in one step; take it back at the end."""
    if not path:
        yield
        return
    content = json.dumps({"pid": os.getpid(), "doors": dict(addresses)})
    target = Path(path)
    draft = target.with_name(f"{target.name}.{os.getpid()}.draft")
    try:
        draft.write_text(content + "\n")
        draft.replace(target)
    except OSError as error:
        raise StartError(f"the ready file {path} cannot be written: {error.strerror}") from error
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            target.unlink()


@contextlib.contextmanager
def watchdog(limit_s: float, code: int) -> Iterator[None]:
    """End the process by force when the block takes longer than `limit_s`."""

    def bite() -> None:
        log.error("server.watchdog", extra={"limit_s": limit_s, "code": code})
        os._exit(code)

    timer = threading.Timer(limit_s, bite)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


async def _first(*waits: Awaitable[object]) -> None:
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _escaped(fail: Callable[[BaseException], object], context: Mapping[str, object]) -> None:
    """An exception that nobody caught: log it; a broken invariant ends the server."""
    error = context.get("exception")
    exception = error if isinstance(error, BaseException) else None
    log.error("loop.exception", exc_info=exception, extra={"what": str(context.get("message"))})
    if isinstance(error, AssertionError):
        fail(error)
