"""`trilogue serve` forked from a process that has loaded it: an eighth of the CPU of a new process.

Each server is a process of its own as before, with its own environment, output and exit code.
Only its modules were loaded by somebody else, once for all servers of a test process.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from multiprocessing.context import ForkServerProcess
from pathlib import Path

LOADED = ("trilogue.cli.serve", "trilogue.cli.verbs", "trilogue.node.node")
STDOUT, STDERR = 1, 2

_starting = threading.Lock()


def find_network() -> str:
    """Return the network namespace of this thread."""
    return str(Path("/proc/thread-self/ns/net").readlink())


NETWORK = find_network()  # of the servers that are forked


class ForkedProcess:
    """What tests use of a `subprocess.Popen`, of a process that was forked."""

    def __init__(self, process: ForkServerProcess) -> None:
        assert process.pid is not None
        self._process = process
        self.pid = process.pid

    @property
    def returncode(self) -> int | None:
        return self.poll()

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired("trilogue", timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def fork_trilogue(
    arguments: Sequence[str],
    *,
    environment: Mapping[str, str],
    output: Path,
    errors: Path | None = None,
) -> ForkedProcess:
    """Run `trilogue ARGUMENTS` in a process of its own, its stdout and stderr in files.

    Without `errors` both are in `output`.
    """
    files = (str(output), str(errors or output))
    context = multiprocessing.get_context("forkserver")
    with _starting:
        context.set_forkserver_preload(list(LOADED))
        process = context.Process(
            target=_run, args=(list(arguments), dict(environment), files), daemon=True
        )
        process.start()
    return ForkedProcess(process)


def _run(arguments: list[str], environment: dict[str, str], files: tuple[str, str]) -> None:
    for descriptor, path in zip((STDOUT, STDERR), files, strict=True):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(opened, descriptor)
        os.close(opened)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["trilogue", *arguments]
    from trilogue.cli.main import main

    try:
        main()
    finally:
        atexit._run_exitfuncs()  # multiprocessing leaves by os._exit
