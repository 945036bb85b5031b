"""`trilogue upgrade-check`: whether this version serves a data directory, and what it changes.

Nothing is changed by it, and a server may run on the directory meanwhile.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Annotated, Final

import msgspec
import typer

from trilogue import __version__
from trilogue.cli.options import ConfigOption, DataOption, exit_with_error, settings_from
from trilogue.log.directory import CLUSTER_FILE, FORMAT, RESTORING, parse_format
from trilogue.log.journal import frame
from trilogue.log.segments import manifest, segment
from trilogue.meta import operations
from trilogue.meta.sqlite import connect

_START_MAX: Final = 4096  # bytes of a file that are read
_JOURNAL: Final = Struct(">8s4xI")  # magic, checksum, version
_SEGMENT: Final = Struct(">8sH")  # magic, version


def upgrade_check(
    *,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check whether this version serves a data directory, and what its next start changes.

    Exit code 0: it does; 1: it does not; 2: a setting is wrong or no longer there.
    """
    settings = settings_from(data=data, config=config)
    path = Path(settings.text("data"))
    try:
        found = read_formats(path)
    except OSError as error:
        exit_with_error(f"{error.strerror}: {error.filename}", 1)
    if as_json:
        rows = [{**msgspec.structs.asdict(each), "verdict": each.verdict} for each in found]
        typer.echo(json.dumps(rows, indent=2))
    else:
        _print(path, found)
    if not all(each.can_be_served for each in found):
        raise typer.Exit(1)


def _print(path: Path, found: list[FoundFormat]) -> None:
    if not found:
        typer.echo(f"{path}: no data yet")
        return
    width = max(len(each.part) for each in found)
    for each in found:
        typer.echo(f"{each.part:<{width}}  {each.verdict}")
    if not all(each.can_be_served for each in found):
        typer.echo(f"trilogue {__version__} cannot serve {path}")
        return
    typer.echo(f"trilogue {__version__} can serve {path}")
    if (path / CLUSTER_FILE).exists():
        typer.echo(
            "the metadata is in the cluster's database: its first node of this version upgrades it"
        )
    elif any(each.changes for each in found):
        typer.echo(
            "an older version refuses it from the next start on: "
            f"`trilogue backup TARGET --data {path}` first"
        )


class FoundFormat(msgspec.Struct, frozen=True):
    """The format of one part of a data directory.

    `found` is None where the part cannot be read; `reason` says why then.
    """

    part: str
    found: int | None
    known: int
    is_upgraded: bool = False  # a start rewrites it: an older program refuses it from then on
    reason: str = ""

    @property
    def can_be_served(self) -> bool:
        """Whether this program serves it."""
        return self.found is not None and self.found <= self.known

    @property
    def changes(self) -> bool:
        """Whether the next start changes it."""
        return self.is_upgraded and self.can_be_served and self.found != self.known

    @property
    def verdict(self) -> str:
        """What happens to it, for people."""
        if self.found is None:
            return self.reason
        if self.found > self.known:
            return f"format {self.found}, newer than {self.known}: use the version that wrote it"
        if self.changes:
            return f"format {self.found}, becomes {self.known} with the next start"
        if self.found < self.known:
            return f"format {self.found}, is read as it is; new files have {self.known}"
        return f"format {self.found}, as this version writes it"


def read_formats(data: Path) -> list[FoundFormat]:
    """Return the formats of the parts that are there. Raises OSError."""
    parts = [_directory(data), _metadata(data / "meta.sqlite")]
    folders = [data / "journal", *sorted((data / "nodes").glob("*/journal"))]
    for folder in folders:
        name = f"journal of node {folder.parent.name}" if folder.parent != data else "journal"
        parts.append(_newest(name, folder, _JOURNAL, frame.FILE_MAGIC, frame.VERSION))
    segments = data / "segments"
    parts.append(
        _newest("segments", segments, _SEGMENT, segment.HEADER_MAGIC, segment.FORMAT_VERSION)
    )
    parts.append(_manifest(segments / manifest.MANIFEST_NAME))
    found = [each for each in parts if each is not None]
    if (data / RESTORING).exists():
        found.append(FoundFormat("restore", None, 0, reason="has not ended: run it again"))
    return found


def _start(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_START_MAX)


def _directory(data: Path) -> FoundFormat | None:
    path = data / "format"
    if not path.exists():
        return None
    version = parse_format(_start(path))
    reason = "names no format: it is damaged" if version is None else ""
    return FoundFormat("directory", version, FORMAT, reason=reason)


def _metadata(path: Path) -> FoundFormat | None:
    if not (path.exists() and path.stat().st_size):  # a start creates it
        return None
    try:
        with contextlib.closing(connect(path, read_only=True)) as database:
            (version,) = database.execute("PRAGMA user_version").fetchone()
    except sqlite3.Error as error:
        return FoundFormat("metadata", None, operations.FORMAT_VERSION, reason=str(error))
    return FoundFormat("metadata", version, operations.FORMAT_VERSION, is_upgraded=True)


def _newest(
    part: str, folder: Path, header: Struct, magic: bytes, known: int
) -> FoundFormat | None:
    """Return the newest format of the files of a folder; what is torn is for recovery."""
    versions = []
    for path in _files(folder):
        content = _start(path)
        if len(content) >= header.size:
            found, version = header.unpack_from(content)
            if found == magic:
                versions.append(version)
    return FoundFormat(part, max(versions), known) if versions else None


def _files(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        yield from (path for path in folder.iterdir() if path.is_file())


def _manifest(path: Path) -> FoundFormat | None:
    if not path.exists():
        return None
    known = manifest.FORMAT_VERSION
    try:
        content = msgspec.json.decode(path.read_bytes())
        version = content["format"]
    except (msgspec.MsgspecError, KeyError, TypeError):
        return FoundFormat("manifest", None, known, reason="cannot be read")
    return FoundFormat("manifest", version, known, is_upgraded=True)
