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

from trilogue.demo.steps import DemoFailed

if TYPE_CHECKING:
    from trilogue.demo.steps import Steps

START_S, STOP_S = 30.0, 60.0


class ServerAddresses(NamedTuple):
    """Kafka's bootstrap server, Pulsar's service URL, and host and port of the TubeMQ master."""

    kafka: str
    pulsar: str
    tubemq: str


@contextmanager
def running_server(output: Path, work: Steps) -> Iterator[ServerAddresses]:
    """Start a server with its data in `output`, yield its addresses, and stop it at the end.

    It runs in a session of its own: Ctrl-C in the terminal reaches only the demo, which stops it.
    """
    ready, log = output / "ready.json", output / "server.log"
    command = [
        sys.executable, "-m", "trilogue.cli.main", "serve",
        "--data", str(output / "data"),
        "--listen", "kafka=127.0.0.1:0",
        "--listen", "pulsar=127.0.0.1:0",
        "--listen", "tubemq-master=127.0.0.1:0",
        "--listen", "tubemq-broker=127.0.0.1:0",
        "--listen", "http=127.0.0.1:0",
        "--ready-file", str(ready),
    ]  # fmt: skip
    with log.open("wb") as to:
        process = subprocess.Popen(  # noqa: S603 - our own program
            command, stdin=subprocess.DEVNULL, stdout=to, stderr=to, start_new_session=True,
            env=without_settings(os.environ),
        )  # fmt: skip
    try:
        with work.step("start the broker"):
            addresses = _wait_until_ready(process, ready, log)
        yield addresses
    finally:
        stop_process(process)


def without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without settings of the user's own server."""
    kept = {name: value for name, value in environment.items() if not name.startswith("TRILOGUE_")}
    return {**kept, "TRILOGUE_CONFIG": ""}


def _wait_until_ready(process: subprocess.Popen[bytes], ready: Path, log: Path) -> ServerAddresses:
    until = time.monotonic() + START_S
    while not ready.exists():
        if process.poll() is not None:
            reason = log.read_text(errors="replace").strip().split("\n")[-1]
            raise DemoFailed(f"the server ended at once, with code {process.returncode}: {reason}")
        if time.monotonic() > until:
            raise DemoFailed(f"the server was not ready after {START_S:.0f} s; see {log}")
        time.sleep(0.01)
    listeners = json.loads(ready.read_text())["doors"]
    return ServerAddresses(
        str(listeners["kafka"]),
        f"pulsar://{listeners['pulsar']}",
        str(listeners["tubemq-master"]),
    )


def stop_process(process: subprocess.Popen[bytes]) -> None:
    """Terminate the process; kill it if it has not ended after 60 s."""
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
