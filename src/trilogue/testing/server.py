"""The process of `trilogue serve --test`: a broker for the tests of programs in any language.

    program ──starts──► broker in a thread, control interface in the main one
            ◄──one line of JSON: the addresses──
            ──closes stdin, ends, or sends a signal──► everything is removed

A test server ends with the program that started it: at the end of its standard input where that is
a pipe, when its parent process is another one, or after a time.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import stat
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from trilogue.gateway.http.connection_limits import HttpLimits
from trilogue.gateway.http.listener import HttpListener
from trilogue.node.errors import StartError
from trilogue.node.logs import start_logging
from trilogue.node.settings.sources import parse_assignment
from trilogue.node.settings.table import SettingsError
from trilogue.testing.embedded_broker import EmbeddedBroker

if TYPE_CHECKING:
    from starlette.types import ASGIApp

PARENT_CHECK_S = 0.5
READ_BYTES = 64 << 10
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def run_test_server(
    *,
    data: Path | None,
    assignments: Sequence[str],
    seconds: float | None,
    write_line: Callable[[str], object],
) -> None:
    """Serve until the parent, stdin, a signal or `seconds` end it; StartError."""
    start_logging(level="warning", form="text", stream=sys.stderr)
    try:
        settings = dict(map(parse_assignment, assignments))
    except SettingsError as error:
        raise StartError(str(error), code=2) from error
    parent = os.getppid()  # before anything that takes long
    broker = EmbeddedBroker(data, settings)
    try:
        try:
            broker.start()
        except SettingsError as error:
            raise StartError(str(error), code=2) from error
        asyncio.run(_serve(broker, parent, seconds, write_line))
    finally:
        broker.stop()


async def _serve(
    broker: EmbeddedBroker,
    parent: int,
    seconds: float | None,
    write_line: Callable[[str], object],
) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in SIGNALS:
        loop.add_signal_handler(number, stop.set)
    addresses: dict[str, str] = {}

    def make_app() -> ASGIApp:
        from trilogue.testing.control import TestControl  # in a thread, when the line is out

        return TestControl(broker, lambda: addresses).app()

    listener = HttpListener(make_app, HttpLimits())
    host, port = listener.bind("127.0.0.1", 0)
    try:
        addresses |= _list_addresses(broker, f"http://{host}:{port}/test")
        write_line(msgspec.json.encode(addresses).decode())
        listener.serve()
        gc.enable()  # `main` disables it for a start
        if _is_pipe(0):
            threading.Thread(
                target=_wait_for_end, args=(loop, stop), name="stdin", daemon=True
            ).start()
        watcher = asyncio.create_task(_watch_parent(parent, stop)) if seconds is None else None
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), seconds)
        if watcher is not None:
            watcher.cancel()
    finally:
        await listener.close()


def _list_addresses(broker: EmbeddedBroker, control: str) -> Mapping[str, str]:
    return {
        "kafka": broker.kafka,
        "pulsar": broker.pulsar,
        "tubemq": broker.tubemq,
        "http": broker.http,
        "test": control,
    }


def _is_pipe(descriptor: int) -> bool:
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _wait_for_end(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    """Read stdin to its end, whatever is in it."""
    with suppress(OSError):
        while os.read(0, READ_BYTES):
            pass
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(stop.set)


async def _watch_parent(parent: int, stop: asyncio.Event) -> None:
    """Stop when the process that started this one is gone."""
    while os.getppid() == parent:  # noqa: ASYNC110 - nothing reports its end
        await asyncio.sleep(PARENT_CHECK_S)
    stop.set()
