"""The demo's broker: a real `trilogue serve` in a process of its own, on free local ports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from trilogue.cli.demo_steps import DemoFailed

if TYPE_CHECKING:
    from trilogue.cli.demo_steps import Steps

START_S, STOP_S = 30.0, 60.0


class Doors(NamedTuple):
    """Where clients find the broker: host and port, for Pulsar's a URL, for TubeMQ's the master."""

    kafka: str
    pulsar: str
    tubemq: str


@contextmanager
def running(output: Path, work: Steps) -> Iterator[Doors]:
    """Start a server with its data in `output`, and stop it at the end; says where its doors are.

    It gets a session of its own: a Ctrl-C in the terminal is for the demo, which stops it last.
    """
    ready, log = output / "ready.json", output / "server.log"
    command = [
        sys.executable, "-m", "trilogue.cli.main", "serve",
        "--data", str(output / "data"),
        "--listen", "kafka=127.0.0.1:0",
        "--listen", "pulsar=127.0.0.1:0",
        "--listen", "tubemq-master=127.0.0.1:0",
        "--listen", "tubemq-broker=127.0.0.1:0",
        "--listen", "tubemq-master=127.0.0.1:0",
        "--listen", "tubemq-broker=127.0.0.1:0",
        "--listen", "http=127.0.0.1:0",
        "--ready-file", str(ready),
    ]  # fmt: skip
    with log.open("wb") as to:
        process = subprocess.Popen(  # noqa: S603 - our own program
            command, stdin=subprocess.DEVNULL, stdout=to, stderr=to, start_new_session=True,
            env=plain(os.environ),
        )  # fmt: skip
    try:
        with work.step("start the broker"):
            doors = _wait(process, ready, log)
        yield doors
    finally:
        stop(process)


def plain(environment: Mapping[str, str]) -> dict[str, str]:
    """Leave out settings that are meant for a server of the user's own; what picks code stays."""
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith("TRILOGUE_") or name == "TRILOGUE_PURE"
    }


def _wait(process: subprocess.Popen[bytes], ready: Path, log: Path) -> Doors:
    until = time.monotonic() + START_S
    while not ready.exists():
        if process.poll() is not None:
            said = log.read_text(errors="replace").strip().split("\n")[-1]
            raise DemoFailed(f"the server ended at once, with code {process.returncode}: {said}")
        if time.monotonic() > until:
            raise DemoFailed(f"the server was not ready after {START_S:.0f} s; see {log}")
        time.sleep(0.01)
    doors = json.loads(ready.read_text())["doors"]
    return Doors(str(doors["kafka"]), f"pulsar://{doors['pulsar']}", str(doors["tubemq-master"]))


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process: politely, and for sure."""
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
