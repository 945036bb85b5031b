"""The demo's broker: a real `trilogue serve` in a process of its own, on free local ports."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

START_S, STOP_S = 30.0, 60.0


class Running(NamedTuple):
    """Where the server listens, and how long it took to do so."""

    kafka: str
    started_s: float


@contextmanager
def running(output: Path) -> Iterator[Running]:
    """Start a server with its data in `output`, and stop it at the end."""
    ready = output / "ready.json"
    command = [
        sys.executable, "-m", "trilogue.cli.main", "serve",
        "--data", str(output / "data"),
        "--listen", "kafka=127.0.0.1:0",
        "--listen", "http=127.0.0.1:0",
        "--ready-file", str(ready),
    ]  # fmt: skip
    started = time.monotonic()
    with (output / "server.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)  # noqa: S603 - our own program
    try:
        while not ready.exists():
            if process.poll() is not None or time.monotonic() - started > START_S:
                raise RuntimeError(f"the server did not start: {output / 'server.log'}")
            time.sleep(0.01)
        doors = json.loads(ready.read_text())["doors"]
        yield Running(doors["kafka"], time.monotonic() - started)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
