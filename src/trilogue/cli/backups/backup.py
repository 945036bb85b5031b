"""`trilogue backup`: copy the data of a server while it runs."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trilogue.cli.backups.options import (
    CredentialsOption,
    EndpointOption,
    RegionOption,
    store_options,
)
from trilogue.cli.cluster import FAILED, JsonOption
from trilogue.cli.options import (
    ConfigOption,
    DataOption,
    SetOption,
    exit_with_error,
    settings_from,
)

if TYPE_CHECKING:
    from trilogue.node.backup.backup import BackupResult
    from trilogue.node.backup.record import BackupRecord


def backup(
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="A folder, or s3://BUCKET/PREFIX.")
    ],
    *,
    data: DataOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    keep: Annotated[
        int | None,
        typer.Option(
            "--keep", metavar="N", min=1, help="Remove all but the newest N backups afterwards."
        ),
    ] = None,
    endpoint: EndpointOption = "",
    region: RegionOption = "",
    credentials_file: CredentialsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy the data directory of a server while it runs; segments that are there are not copied.

    Run it on the server's machine, as the server's user. --data, --config and --set are those of
    `trilogue serve`.
    """
    from trilogue.node.backup.backup import BackupRun
    from trilogue.node.backup.errors import BackupError
    from trilogue.node.backup.targets import open_target
    from trilogue.node.settings.objects import reach_of

    settings = settings_from(data=data, config=config, assignments=assignments, is_complete=False)
    reach = partial(reach_of, settings) if settings.text("objects.url") else None
    began = time.monotonic()
    try:
        place = open_target(
            target, store_options(target, endpoint, region, credentials_file, settings)
        )
        result = BackupRun(Path(settings.text("data")), place, reach).run(keep)
    except BackupError as error:
        exit_with_error(str(error), FAILED)
    _print(result, time.monotonic() - began, as_json=as_json)


def _print(result: BackupResult, seconds: float, *, as_json: bool) -> None:
    from trilogue.cli.tables import print_json, spell_size, spell_time

    record = result.record
    if as_json:
        print_json(
            {
                **summary(record),
                "copied_segments": result.copied_segments,
                "copied_bytes": result.copied_bytes,
                "removed": result.removed,
                "seconds": round(seconds, 3),
            }
        )
        return
    typer.echo(
        f"backup {record.backup_id}: all that was acknowledged until {spell_time(record.cut_ms)}; "
        f"{len(record.segments)} segments ({result.copied_segments} copied), "
        f"{spell_size(record.size)} ({spell_size(result.copied_bytes)} copied), {seconds:.1f} s"
    )
    for backup_id in result.removed:
        typer.echo(f"removed {backup_id}")


def summary(record: BackupRecord) -> dict[str, Any]:
    """Return what lists and reports show of a backup."""
    return {
        "id": record.backup_id,
        "cluster": record.cluster_id,
        "from_ms": record.first_ms,
        "cut_ms": record.cut_ms,
        "segments": len(record.segments),
        "bytes": record.size,
        "nodes": len(record.nodes),
        "version": record.version,
    }
