"""One server process from start to end: loop, signals, ready file, exit code.

    start ──► serving ──SIGTERM, SIGINT──► draining ──► exit code 0
                 │                            └──second signal──► draining without a flush
                 ├──SIGHUP──► settings are read again, clients stay connected
                 └──storage failed──► exit code 3, within two seconds

A watchdog thread ends the process when its time is over, whatever hangs. That loses nothing: only
what is durable was acknowledged, and the next start has more journal to read.
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
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Protocol

from trilogue.meta.errors import Fenced
from trilogue.node import garbage_collector as collector
from trilogue.node.errors import STORAGE_FAILED, StartError
from trilogue.node.logs import start_logging
from trilogue.node.settings.table import Settings

if TYPE_CHECKING:
    from trilogue.node.node import Node
    from trilogue.node.storage import NodePlace

log = logging.getLogger(__name__)

FAILURE_LIMIT_S = 1.0
ERRORS_LEAVE_S = 0.2
TOO_LATE = 1
WATCHDOG_MARGIN_S = 5.0
RESTART_WAITS_S = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
COLLECT_AFTER_S = 10.0  # after a start in a process that was a node before
SWITCH_INTERVAL_S = 0.001  # how long another thread's Python may keep the loop waiting

WriteLine = Callable[[str], object]
ReadSettings = Callable[[], Settings]


class Terminal:
    """The terminal of this process. When it closes SIGHUP comes, which is a stop signal then."""

    def __init__(self) -> None:
        self._was_there = _has_terminal()

    @property
    def has_closed(self) -> bool:
        """Whether there was one, and it is gone."""
        return self._was_there and not _has_terminal()


def _has_terminal() -> bool:
    return any(map(os.isatty, (0, 1, 2)))


class Signals:
    """Signals of this process: SIGHUP sets `reload`, the first other `stop`, the second `hurry`."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.hurry = asyncio.Event()
        self.reload = asyncio.Event()
        self._terminal = Terminal()

    def install(self, loop: asyncio.AbstractEventLoop) -> None:
        """Handle SIGTERM, SIGINT and SIGHUP; SIGHUP stays ignored where `nohup` started us."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self.receive, number)

    def receive(self, number: signal.Signals) -> None:
        """Set the event of a signal."""
        if number is signal.SIGHUP and not self._terminal.has_closed:
            self.reload.set()
            return
        event = self.hurry if self.stop.is_set() else self.stop
        log.info("server.signal", extra={"signal": number.name, "hurry": event is self.hurry})
        event.set()


class Supervision(Protocol):
    """What the process of one of several nodes reports to its supervisor."""

    place: NodePlace

    def report_ready(self, addresses: Mapping[str, str]) -> None:
        """Report that all listeners are open."""

    def report_flushed(self) -> None:
        """Report that what was in the journal is in segments."""

    def report_drained(self) -> None:
        """Report that everything is in segments."""

    async def beat(self) -> None:
        """Report again and again that the event loop runs."""


def run(
    settings: Settings,
    *,
    write_line: WriteLine,
    supervision: Supervision | None = None,
    place: NodePlace | None = None,
    read_settings: ReadSettings | None = None,
) -> int:
    """Serve as a node until a signal or a failure; return the exit code.

    Raises StartError if it cannot start. `supervision` is there for one of several nodes
    of this machine, `place` for one of a cluster; `read_settings` reads the settings at SIGHUP.
    """
    start_logging(level=settings.text("log.level"), form=settings.text("log.format"))
    if supervision is None:
        log_config_file(settings)
    raise_descriptor_limit()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_serve(settings, write_line, supervision, place, read_settings))


def log_config_file(settings: Settings) -> None:
    """Log the file that settings came from, if there is one."""
    if settings.config_file:
        log.info("settings.file", extra={"path": settings.config_file})


def raise_descriptor_limit() -> None:
    """Raise the soft limit of open files to the hard one: each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's event loop factory if it is installed."""
    try:
        from uvloop import new_event_loop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = new_event_loop
    return factory


async def _serve(
    settings: Settings,
    write_line: WriteLine,
    supervision: Supervision | None,
    place: NodePlace | None,
    read_settings: ReadSettings | None,
) -> int:
    signals = Signals()
    loop = asyncio.get_running_loop()
    signals.install(loop)
    place = place if supervision is None else supervision.place
    if place is not None and place.cluster is not None and settings.text("objects.url"):
        from trilogue.node.cluster.store_check import check_store

        await check_store(settings)
    node = await _start_node(settings, place, signals.stop)
    if node is None:
        return 0
    addresses = node.gateways.addresses
    width = max(map(len, addresses), default=0)
    for listener, address in addresses.items():
        write_line(f"{listener:{width}} {address}")
    if supervision is not None:
        loop.add_signal_handler(
            signal.SIGUSR1, lambda: node.add_work(_flush(node, supervision.report_flushed))
        )
        supervision.report_ready(node.gateways.addresses)
        node.add_work(supervision.beat())
    serving: Node | None = node
    presence = _hold_presence(node)
    try:
        with ready_file(settings.text("ready-file"), node.gateways.addresses):
            while serving is not None:
                sys.setswitchinterval(SWITCH_INTERVAL_S)
                await _wait_for_end(serving, signals, read_settings)
                if signals.stop.is_set() or serving.failed.is_set():
                    break
                former, serving = serving, None
                serving = await _start_again(former, place, signals)
    finally:
        if serving is not None:
            await _end_node(serving, signals)
            if serving.is_flushed and supervision is not None:
                supervision.report_drained()
        if presence is not None:
            presence.cancel()
    log.info("server.stopped")
    return 0


async def _wait_for_end(node: Node, signals: Signals, read_settings: ReadSettings | None) -> None:
    """Return when the node is to stop, has failed, or is to start again."""
    collector.configure()
    collecting = asyncio.create_task(collector.collect_periodically(node.memory.closed))
    reloading = asyncio.create_task(_reload_at_signals(node, signals, read_settings))
    wanted = node.hand_over.wanted.wait()
    await _wait_for_first(signals.stop.wait(), node.failed.wait(), wanted)
    collecting.cancel()
    reloading.cancel()


async def _reload_at_signals(
    node: Node, signals: Signals, read_settings: ReadSettings | None
) -> None:
    """Read the settings again at each SIGHUP, also at one that came before the node served."""
    while read_settings is not None:
        await signals.reload.wait()
        signals.reload.clear()
        from trilogue.node.settings.reload import reload_settings

        try:
            await reload_settings(node, read_settings)
        except Exception:  # a bug: the node goes on with what it has
            log.exception("settings.not_read")


async def _end_node(node: Node, signals: Signals) -> None:
    """Drain and close a node; end the process if it has failed, or takes too long."""
    limit_s = node.settings.seconds("shutdown.limit")
    with watchdog(limit_s + WATCHDOG_MARGIN_S, TOO_LATE):
        if not node.failed.is_set():
            await node.drain(signals.hurry, limit_s)
        if not node.failed.is_set():
            await node.close()
        if node.failed.is_set():  # closing writes too, and may fail
            await _end_failed(node.failure)


async def _start_again(node: Node, place: NodePlace | None, signals: Signals) -> Node | None:
    """Start a node of a cluster again in this process, with other slots; None if it was stopped."""
    from trilogue.node.cluster.hand_over import place_again, settings_again

    began = time.monotonic()
    again = place_again(node.place, node.storage)
    settings = settings_again(node.settings, node.gateways.addresses)
    if node.storage.shared is not None:
        node.storage.shared.keeps_lease = True
    await _end_node(node, signals)
    ended_s = time.monotonic() - began
    started = await _start_with_retries(settings, place, signals.stop, again)
    whole = partial(collector.collect, whole=True)  # the former node is among frozen objects
    asyncio.get_running_loop().call_later(COLLECT_AFTER_S, whole)
    took_s = time.monotonic() - began
    log.info("node.again", extra={"ended_s": round(ended_s, 3), "took_s": round(took_s, 3)})
    return started


async def _start_with_retries(
    settings: Settings, place: NodePlace | None, stop: asyncio.Event, again: NodePlace
) -> Node | None:
    """Start a node that has just served: what is away now, as PostgreSQL may be, comes back."""
    for wait_s in RESTART_WAITS_S:
        try:
            return await _start_node(settings, place, stop, again)
        except StartError as error:
            log.warning("node.not_started", extra={"reason": str(error), "again_in_s": wait_s})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await stop.wait()
                return None
    return await _start_node(settings, place, stop, again)


async def _start_node(
    settings: Settings,
    place: NodePlace | None,
    stop: asyncio.Event,
    again: NodePlace | None = None,
) -> Node | None:
    """Return the node when it serves; None if it was stopped while it waited for its lease.

    `again` is the place of a node that this process was just before, and which has its lease.
    """
    from trilogue.node.node import Node  # after logging is set up: imports may log

    loop = asyncio.get_running_loop()
    is_shared = place is not None and place.cluster is not None and place.cluster.shared is not None
    while True:
        granted, again = again or place, None
        if place is not None and granted is place and is_shared:
            from trilogue.node.cluster.waiting import wait_for_lease

            granted = await wait_for_lease(place, Path(settings.text("data")), stop)
            if granted is None:
                return None
        node = Node(settings) if granted is None else Node(settings, place=granted)
        loop.set_exception_handler(partial(_handle_uncaught, node))
        try:
            await node.start()
        except Fenced as error:
            if not is_shared:
                raise
            log.info("cluster.lease_lost", extra={"reason": str(error)})
        else:
            _watch_cluster(node)
            return node


def _hold_presence(node: Node) -> asyncio.Task[None] | None:
    """Show the other processes of a cluster with `ack=shared` that this one runs."""
    cluster = node.place.cluster
    if cluster is None or cluster.shared is None:
        return None
    from trilogue.node.cluster.waiting import keep_presence

    data = Path(node.settings.text("data"))
    return asyncio.create_task(keep_presence(cluster.url, data))


def _watch_cluster(node: Node) -> None:
    """Move slots, and take over those of dead nodes, where that can be."""
    cluster = node.place.cluster
    if cluster is not None and cluster.shared is not None:
        from trilogue.node.cluster.slot_watch import SlotWatch

        node.add_work(SlotWatch(node, cluster, cluster.shared).run())


async def _flush(node: Node, report: Callable[[], None]) -> None:
    await node.flusher.flush_all()
    report()


async def _end_failed(failure: BaseException | None) -> NoReturn:
    """Let error responses leave, then exit without waiting for threads: one may hang in a disk."""
    with watchdog(FAILURE_LIMIT_S, STORAGE_FAILED):
        sys.stderr.write(f"trilogue: stopped: {failure}\n")
        sys.stderr.flush()
        await asyncio.sleep(ERRORS_LEAVE_S)
        os._exit(STORAGE_FAILED)


@contextlib.contextmanager
def ready_file(path: str, addresses: Mapping[str, str]) -> Iterator[None]:
    """Create the ready file in one step, since all listeners are open; remove it at the end."""
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

    def expire() -> None:
        log.error("server.watchdog", extra={"limit_s": limit_s, "code": code})
        os._exit(code)

    timer = threading.Timer(limit_s, expire)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


async def _wait_for_first(*waits: Awaitable[object]) -> None:
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _handle_uncaught(
    node: Node, _loop: asyncio.AbstractEventLoop, context: Mapping[str, object]
) -> None:
    """Log an exception that no task caught; an AssertionError ends the server."""
    error = context.get("exception")
    exception = error if isinstance(error, BaseException) else None
    log.error("loop.exception", exc_info=exception, extra={"what": str(context.get("message"))})
    if isinstance(error, AssertionError):
        node.fail(error)
