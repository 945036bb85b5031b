"""`trilogue restore`: list backups, verify one, make a data directory from one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trilogue.cli.backups.backup import summary
from trilogue.cli.backups.options import (
    CredentialsOption,
    EndpointOption,
    RegionOption,
    store_options,
)
from trilogue.cli.cluster import FAILED, JsonOption
from trilogue.cli.options import USAGE_ERROR, exit_with_error

if TYPE_CHECKING:
    from trilogue.node.backup.record import BackupRecord
    from trilogue.node.backup.targets import BackupTarget


def restore(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A folder, or s3://BUCKET/PREFIX.")
    ],
    data: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="A new or empty data directory.")
    ] = None,
    *,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="TIME",
            help="As of a time (2026-05-01T12:00, -1h), or the last one before it that there is.",
        ),
    ] = "",
    backup: Annotated[str, typer.Option("--backup", metavar="ID", help="As of a backup.")] = "",
    listed: Annotated[bool, typer.Option("--list", help="List the backups.")] = False,
    verified: Annotated[
        bool,
        typer.Option("--verify", help="Read the backup, compare checksums and restore nothing."),
    ] = False,
    endpoint: EndpointOption = "",
    region: RegionOption = "",
    credentials_file: CredentialsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a data directory from a backup: the newest, one of an id, or as of a time."""
    if to and backup:
        exit_with_error("--to TIME and --backup ID exclude each other", USAGE_ERROR)
    if data is None and not (listed or verified):
        exit_with_error("the directory to restore to is missing: restore SOURCE DIR", USAGE_ERROR)
    until_ms = _parse_time(to) if to else None
    from trilogue.node.backup.errors import BackupError
    from trilogue.node.backup.restore import choose_backup, find_backup
    from trilogue.node.backup.targets import open_target

    try:
        place = open_target(source, store_options(source, endpoint, region, credentials_file))
        if place.folder is not None and not place.folder.is_dir():
            raise BackupError(f"there is no folder {place.folder}")
        records = place.records()
        if listed:
            _list(records, as_json=as_json)
            return
        chosen = find_backup(records, backup) if backup else choose_backup(records, until_ms)
        if verified:
            _verify(place, chosen)
        else:
            assert data is not None
            _restore(place, chosen, data.absolute(), until_ms, as_json=as_json)
    except BackupError as error:
        exit_with_error(str(error), FAILED)


def _parse_time(text: str) -> int:
    from trilogue.cli.offsets import PositionError, parse_position

    try:
        position = parse_position(text)
    except PositionError as error:
        exit_with_error(f"--to {error}", USAGE_ERROR)
    if position.offset is not None or position.time < 0:
        exit_with_error(f"--to {text}: expected a time, 2026-05-01T12:00 or -1h", USAGE_ERROR)
    return position.time


def _list(records: list[BackupRecord], *, as_json: bool) -> None:
    from trilogue.cli.tables import Size, print_json, print_table, spell_time

    if as_json:
        print_json([summary(record) for record in records])
        return
    rows = [
        {
            "id": record.backup_id,
            "from": spell_time(record.first_ms),
            "to": spell_time(record.cut_ms),
            "segments": len(record.segments),
            "size": Size(record.size),
            "version": record.version,
        }
        for record in records
    ]
    print_table(rows, list(rows[0]) if rows else ["id"])


def _verify(place: BackupTarget, chosen: BackupRecord) -> None:
    from trilogue.node.backup.restore import verify

    wrong = verify(place, chosen)
    for line in wrong:
        typer.echo(line)
    if wrong:
        raise typer.Exit(FAILED)
    count = len(chosen.files) + len(chosen.segments)
    typer.echo(f"backup {chosen.backup_id} is whole: {count} objects have their checksums")


def _restore(
    place: BackupTarget, chosen: BackupRecord, data: Path, until_ms: int | None, *, as_json: bool
) -> None:
    from trilogue.cli.tables import print_json, spell_size, spell_time
    from trilogue.node.backup.restore import restore

    result = restore(place, chosen, data, until_ms)
    if as_json:
        print_json(
            {
                **summary(chosen),
                "until_ms": result.until_ms,
                "dropped_frames": result.dropped_frames,
                "directory": str(data),
            }
        )
        return
    typer.echo(
        f"{data}: backup {chosen.backup_id}, all that was acknowledged until "
        f"{spell_time(result.until_ms)}; {len(chosen.segments)} segments, "
        f"{spell_size(chosen.size)}"
    )
    if until_ms is not None and result.until_ms < until_ms:
        typer.echo(f"no backup reaches up to {spell_time(until_ms)}")
    if chosen.has_objects:
        typer.echo(
            "set objects.url to another prefix before this directory is served: the server that "
            "was backed up may still use the one it had"
        )
