"""A PostgreSQL server for tests: a folder and a port of its own, one database for each test.

PostgreSQL does not run as root, so root starts it as the user `postgres` (or `nobody`), with files
in a folder of that user.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tools.servers.probe import free_port

from tests.relay import Relay
from tests.tools import require

START_S = 60.0
LOOK_S = 0.05


def find_programs() -> Path | None:
    """The folder of initdb and postgres: Debian keeps them out of PATH."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    found = shutil.which("initdb")
    if found:
        folders.insert(0, Path(found).resolve().parent)
    return next((each for each in folders if (each / "initdb").exists()), None)


def require_postgres() -> Path:
    require("asyncpg", found=importlib.util.find_spec("asyncpg"))
    programs = find_programs()
    require("postgresql", found=programs)
    assert programs is not None
    return programs


class PostgresServer:
    """`start`, `stop`, `kill` at will; `new_database` returns a URL."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self.programs, self.folder = programs, folder
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self._names = itertools.count(1)
        self._emptied: str | None = None
        self._user: str | None = None
        if os.geteuid() == 0:
            names = {each.pw_name for each in pwd.getpwall()}
            self._user = "postgres" if "postgres" in names else "nobody"
            shutil.chown(folder, self._user)

    def initialize(self) -> None:
        options = ["-U", "trilogue", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale", "C"]
        self._run_program("initdb", "-D", str(self.data), *options)

    def copy(self, primary: PostgresServer) -> None:
        """Make the data of a standby, which follows `primary` once it is started."""
        at = ["-d", primary.url("postgres"), "--write-recovery-conf", "--no-sync"]
        self._run_program("pg_basebackup", "-D", str(self.data), *at)

    def _run_program(self, name: str, *arguments: str) -> None:
        command = [str(self.programs / name), *arguments]
        subprocess.run(command, check=True, capture_output=True, cwd="/", user=self._user)

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def start(self, *options: str) -> None:
        """Return when the server answers."""
        given = ["listen_addresses=127.0.0.1", f"port={self.port}", "unix_socket_directories="]
        given += ["shared_buffers=16MB", "max_connections=60", *options]
        command = [str(self.programs / "postgres"), "-D", str(self.data)]
        for each in given:
            command += ["-c", each]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd="/", user=self._user, start_new_session=True
            )
        import asyncpg

        ends = time.monotonic() + START_S
        while time.monotonic() < ends:
            assert self.process.poll() is None, (self.folder / "log").read_text()
            try:
                self.run("SELECT 1")
            except (OSError, asyncpg.PostgresError):
                time.sleep(LOOK_S)
            else:
                return
        raise TimeoutError("PostgreSQL did not answer")

    def stop(self, number: int = signal.SIGINT) -> None:
        """SIGINT ends all connections and shuts down; SIGQUIT ends as a crash does."""
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(START_S)
            self.process = None

    def url(self, database: str) -> str:
        return f"postgresql://trilogue@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        name = f"test_{next(self._names)}"
        self.run(f"CREATE DATABASE {name}")
        return self.url(name)

    def emptied_database(self) -> str:
        """The URL of one database for tests one after the other: quicker than new ones."""
        if self._emptied is None:
            self._emptied = self.new_database()
        self.run("DROP SCHEMA IF EXISTS trilogue CASCADE", self._emptied)
        return self._emptied

    def run(self, query: str, url: str | None = None) -> list[Sequence[object]]:
        """The rows of one statement, on a connection of its own."""

        import asyncpg

        async def once() -> list[Sequence[object]]:
            connection = await asyncpg.connect(url or self.url("postgres"), timeout=5)
            try:
                return [tuple(row) for row in await connection.fetch(query)]
            finally:
                await connection.close()

        return asyncio.run(once())


@contextlib.contextmanager
def running_postgres(
    *options: str, primary: PostgresServer | None = None
) -> Iterator[PostgresServer]:
    """A server that runs, for the fixture of a module or a session; a standby of `primary`."""
    programs = require_postgres()
    with tempfile.TemporaryDirectory(prefix="trilogue-postgres-") as folder:
        Path(folder).chmod(0o755)
        server = PostgresServer(programs, Path(folder))
        if primary is None:
            server.initialize()
        else:
            server.copy(primary)
        try:
            server.start(*options)
            yield server
        finally:
            server.stop()


class CuttingProxy(Relay):
    """A TCP proxy before the server that closes a connection at its next COMMIT.

    `cut` = "before": the server never gets it; "after": it has committed, and its answer is lost.
    """

    def __init__(self, port: int) -> None:
        self.cut = ""
        self.cuts = 0
        self._unanswered: set[socket.socket] = set()  # whose next answer is lost
        super().__init__(port)

    def serve(self, client: socket.socket) -> None:
        server = self.connect()
        passing = threading.Thread(target=self._to_client, args=(server, client), daemon=True)
        with client, server:
            passing.start()
            with contextlib.suppress(OSError):
                while data := client.recv(1 << 16):
                    if b"COMMIT\0" in data and self.cut:
                        how, self.cut = self.cut, ""
                        self.cuts += 1
                        if how == "after":
                            self._unanswered.add(server)
                            server.sendall(data)
                        else:
                            client.shutdown(socket.SHUT_RDWR)
                        break
                    server.sendall(data)
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_WR)
            passing.join()
            self._unanswered.discard(server)

    def _to_client(self, server: socket.socket, client: socket.socket) -> None:
        """Pass answers on; after that of a COMMIT which is to be lost, close."""
        with contextlib.suppress(OSError):
            while (data := server.recv(1 << 16)) and server not in self._unanswered:
                client.sendall(data)
        for each in (server, client):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
