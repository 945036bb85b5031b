"""A real `trilogue serve` in a process of its own, for tests that kill it and talk to it.

    with start_server(tmp_path / "data") as server:
        client = connect(server.doors["kafka"])
        server.kill9()                            # the process and nothing else
    server = start_server(tmp_path / "data")      # the same data again
    assert 0 == server.stop()                     # SIGTERM, exit code

Settings go by name, `__` standing for a dot and `_` for a dash (`journal__file_size=65536` is
`--set journal.file-size=65536`), or as a mapping in `settings`. Every listener has a free
port of 127.0.0.1; with `listen` those of Pulsar and TubeMQ do only if they are named. Nothing here
sleeps: waiting is waiting for the ready file or for the exit.

A server is forked from a process that has loaded Trilogue (tests/forked.py), unless it has a
wrapper, variables or a network of its own: these start `python -m trilogue.cli.main`.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.forked import NETWORK, ForkedProcess, find_network, fork_trilogue

LISTENERS = ("kafka", "pulsar", "tubemq-master", "tubemq-broker", "http")
UNLESS_NAMED = {  # its usual ports, where it would listen otherwise, are taken now and then
    **dict.fromkeys(("kafka", "http"), "127.0.0.1:0"),
    **dict.fromkeys(("pulsar", "tubemq-master", "tubemq-broker"), "off"),
}
# What a secured directory opens, at free ports too.
SECURED = dict.fromkeys(
    ("kafka-sasl-ssl", "pulsar-ssl", "tubemq-master-ssl", "tubemq-broker-ssl", "https"),
    "127.0.0.1:0",
)
NODES = "TRILOGUE_TEST_NODES"  # serve every test by so many nodes
CLUSTER = "TRILOGUE_TEST_CLUSTER"  # the same, by nodes of a cluster on PostgreSQL
START_TIMEOUT = 120.0  # on a shared machine too
STOP_TIMEOUT = 120.0
LOOK_EVERY = 0.005

_numbers = itertools.count(1)
_running: set[Server] = set()


class ServerDiedError(Exception):
    """The process ended before it was ready; the text holds its exit code and its output."""


class Server:
    """One running server: its process id, its listeners ({"kafka": "127.0.0.1:40123"}), its end."""

    def __init__(
        self,
        process: subprocess.Popen[bytes] | ForkedProcess,
        *,
        data: Path,
        ready_file: Path,
        log_file: Path,
    ) -> None:
        self.process = process
        self.data = data
        self.ready_file = ready_file
        self.log_file = log_file
        self.doors: dict[str, str] = {}
        self.started_in: float = 0.0
        self.others: list[Server] = []  # nodes of its cluster that live and end with it
        _running.add(self)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def kafka(self) -> str:
        return self.doors["kafka"]

    @property
    def pulsar(self) -> str:
        return f"pulsar://{self.doors['pulsar']}"

    @property
    def tubemq(self) -> str:
        """Where the master is."""
        return self.doors["tubemq-master"]

    @property
    def http(self) -> str:
        return f"http://{self.doors['http']}"

    @property
    def output(self) -> str:
        """What it wrote to stdout and stderr so far."""
        return "".join(each.log_file.read_text(errors="replace") for each in [self, *self.others])

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def wait_ready(self, timeout: float = START_TIMEOUT) -> Server:
        """Wait until every listener is open; raise ServerDiedError when the process ends before."""
        began = time.monotonic()
        try:
            for each in self.others:
                each.wait_ready(timeout)
        except ServerDiedError:
            self.kill9()
            raise
        while time.monotonic() - began < timeout:
            with contextlib.suppress(FileNotFoundError):
                ready = json.loads(self.ready_file.read_text())
                if ready["pid"] == self.pid:
                    self.doors = ready["doors"]
                    self.started_in = time.monotonic() - began
                    return self
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self.process.wait(LOOK_EVERY)
                raise ServerDiedError(f"exit code {code} before it was ready:\n{self.output}")
        self.kill9()
        raise ServerDiedError(f"not ready within {timeout} s:\n{self.output}")

    def signal(self, number: signal.Signals) -> None:
        for each in [self, *self.others]:
            each.process.send_signal(number)

    def wait(self, timeout: float = STOP_TIMEOUT) -> int:
        """Exit code of the process, once it has ended by itself."""
        try:
            for each in self.others:
                each.wait(timeout)
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill9()
            raise AssertionError(f"still running after {timeout} s:\n{self.output}") from None
        _running.discard(self)
        return code

    def stop(self, timeout: float = STOP_TIMEOUT) -> int:
        """SIGTERM (a drain), then the exit code: 0 when all is well."""
        if self.alive:
            self.signal(signal.SIGTERM)
        return self.wait(timeout)

    def kill9(self) -> None:
        """SIGKILL: no drain, no flush, nothing; come back when the process is gone."""
        for each in [self, *self.others]:
            if each.alive:
                each.process.kill()
        for each in [self, *self.others]:
            each.process.wait(STOP_TIMEOUT)
            _running.discard(each)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill9()


def start_server(
    data: Path,
    *,
    listen: Mapping[str, str] | None = None,
    settings: Mapping[str, object] | None = None,
    arguments: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    wrapper: Sequence[str] = (),
    timeout: float = START_TIMEOUT,
    **named: object,
) -> Server:
    """Start a server on `data` and return it once all its listeners are open."""
    server = launch_server(
        data,
        listen=listen,
        settings=settings,
        arguments=arguments,
        environment=environment,
        wrapper=wrapper,
        **named,
    )
    return server.wait_ready(timeout)


def launch_server(
    data: Path,
    *,
    listen: Mapping[str, str] | None = None,
    settings: Mapping[str, object] | None = None,
    arguments: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    wrapper: Sequence[str] = (),
    **named: object,
) -> Server:
    """Start a server and do not wait for it: for starts that must fail. `wrapper` goes before
    the command (`strace -e inject=...`)."""
    doors = dict.fromkeys(LISTENERS, "127.0.0.1:0")
    if listen is not None:
        doors = {**UNLESS_NAMED, **listen}
    if "--secure" in arguments or (Path(data) / "secure.toml").exists():
        doors = {**SECURED, **doors}
    named_settings = {
        name.replace("__", ".").replace("_", "-"): value for name, value in named.items()
    }
    several = {"nodes": os.environ[NODES]} if os.environ.get(NODES) else {}
    given = {**several, **(settings or {}), **named_settings}

    def launch(data: Path, doors: Mapping[str, str], more: Mapping[str, object]) -> Server:
        command = [f"--listen={door}={address}" for door, address in doors.items()]
        for key, value in {**more, **given}.items():
            command += ["--set", f"{key}={spelled(value)}"]
        return _launch_process(data, [*command, *arguments], environment, wrapper)

    size = int(os.environ.get(CLUSTER) or 1)
    if size == 1 or "--cluster" in arguments or "nodes" in given:
        return launch(data, doors, {})
    from tests import cluster_nodes

    first, *others = (
        launch(
            cluster_nodes.data_directory(data, number),
            cluster_nodes.listeners(doors, number),
            cluster_nodes.cluster_settings(data, size, number),
        )
        for number in range(1, size + 1)
    )
    first.others = others
    return first


def count_nodes() -> int:
    """Return how many nodes serve each test."""
    return max(int(os.environ.get(each) or 1) for each in (NODES, CLUSTER))


def _launch_process(
    data: Path,
    arguments: Sequence[str],
    environment: Mapping[str, str] | None,
    wrapper: Sequence[str],
) -> Server:
    data = Path(data)
    data.parent.mkdir(parents=True, exist_ok=True)
    number = f"{os.getpid()}-{next(_numbers)}"
    ready_file = data.parent / f"{data.name}.{number}.ready"
    log_file = data.parent / f"{data.name}.{number}.output"
    command = ["serve", "--data", str(data), "--ready-file", str(ready_file), *arguments]
    process: subprocess.Popen[bytes] | ForkedProcess
    if wrapper or environment or find_network() != NETWORK:
        with log_file.open("wb") as output:
            process = subprocess.Popen(
                [*wrapper, *command_line(*command)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=clean_environment(environment),
            )
    else:
        log_file.touch()  # the child opens it, and this process may read it before that
        process = fork_trilogue(command, environment=clean_environment(), output=log_file)
    return Server(process, data=data, ready_file=ready_file, log_file=log_file)


def run_trilogue(
    *arguments: str, environment: Mapping[str, str] | None = None, timeout: float = START_TIMEOUT
) -> subprocess.CompletedProcess[str]:
    """Run one `trilogue` command to its end; stdout and stderr apart.

    It is forked as servers are, unless it has variables or a network of its own.
    """
    if environment is None and find_network() == NETWORK:
        return _fork_command(arguments, timeout)
    return subprocess.run(
        command_line(*arguments),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=clean_environment(environment),
        timeout=timeout,
        check=False,
    )


def _fork_command(arguments: Sequence[str], timeout: float) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory() as folder:
        output, errors = Path(folder, "output"), Path(folder, "errors")
        process = fork_trilogue(
            arguments, environment=clean_environment(), output=output, errors=errors
        )
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return subprocess.CompletedProcess(
            list(arguments), code, output.read_text(), errors.read_text()
        )


def command_line(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "trilogue.cli.main", *arguments]


def clean_environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of the tests without settings and files of Trilogue."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TRILOGUE_")}
    no_files = {"TRILOGUE_CONFIG": "", "TRILOGUE_CLIENT_CONFIG": ""}
    return {**kept, **no_files, **(more or {})}


def spelled(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@atexit.register
def _kill_what_is_left() -> None:
    for server in list(_running):
        if server.alive:
            server.process.kill()
