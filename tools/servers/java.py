"""A Java server in a process of its own: its class path, its output, its end."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
STOP_TIMEOUT = 30.0
CLIENT_LOGGING = """\
status = error
appender.c.type = Console
appender.c.name = C
appender.c.target = SYSTEM_ERR
appender.c.layout.type = PatternLayout
rootLogger.level = error
rootLogger.appenderRef.c.ref = C
"""
"""log4j2.properties of a client in Java: errors on standard error."""
OPENED = ("java.nio", "jdk.internal.misc", "sun.net", "java.util")
"""Packages that netty looks into."""


def jars(name: str) -> Path:
    """Where `make jars` (or TRILOGUE_JARS) put the class path of a version."""
    return Path(os.environ.get("TRILOGUE_JARS", ROOT / "build" / "jars")) / name


class JavaServer:
    """One server with a directory of its own; started and killed as often as wanted."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.started_in = 0.0
        self.process: subprocess.Popen[bytes] | None = None
        root.mkdir(parents=True, exist_ok=True)

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def output(self) -> str:
        return (self.root / "output").read_text(errors="replace")

    def run(self, command: list[str]) -> None:
        """Start the process; it ends with ours."""
        with (self.root / "output").open("ab") as output:
            self.process = subprocess.Popen(
                command,
                cwd=self.root,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        atexit.register(self.kill9)

    def stop(self) -> int:
        """SIGTERM and its exit code; SIGKILL when it takes too long."""
        assert self.process is not None
        if self.alive:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.kill9()
            return -signal.SIGKILL

    def kill9(self) -> None:
        if self.process is not None:
            if self.alive:
                self.process.kill()
            self.process.wait(STOP_TIMEOUT)
        atexit.unregister(self.kill9)
