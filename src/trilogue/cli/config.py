"""`trilogue config`: every setting with the value that a server would use, and its origin."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from trilogue.cli.options import (
    AdvertiseOption,
    ConfigOption,
    DataOption,
    InsecureOption,
    ListenOption,
    ReadyFileOption,
    SetOption,
    settings_from,
)

if TYPE_CHECKING:
    from trilogue.node.settings.table import Settings


HIDDEN = "(secret)"


def config(
    *,
    data: DataOption = None,
    config: ConfigOption = None,
    listen: ListenOption = None,
    advertise: AdvertiseOption = None,
    assignments: SetOption = None,
    ready_file: ReadyFileOption = None,
    insecure: InsecureOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the reference of all settings.")
    ] = False,
) -> None:
    """Print every setting with its value and origin."""
    if markdown:
        typer.echo(reference(), nl=False)
        return
    settings = settings_from(
        data=data,
        config=config,
        listen=listen,
        advertise=advertise,
        assignments=assignments,
        ready_file=ready_file,
        insecure=insecure,
    )
    typer.echo(_json(settings) if as_json else "\n".join(_table(settings)))


def reference() -> str:
    """Return the text of docs/reference/settings.md."""
    return "\n".join(_reference_lines())


def _json(settings: Settings) -> str:
    rows = {
        row.key: {
            "value": HIDDEN if row.secret and given.value else given.value,
            "origin": given.origin,
        }
        for row, given in settings
    }
    return json.dumps(rows, indent=2)


def _table(settings: Settings) -> Iterator[str]:
    from trilogue.broker.settings.values import format_value

    rows = [
        (
            row.key,
            HIDDEN if row.secret and given.value else format_value(row.kind, given.value),
            given.origin,
        )
        for row, given in settings
    ]
    rows.insert(0, ("setting", "value", "origin"))
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for key, value, origin in rows:
        yield f"{key:<{widths[0]}}  {value:<{widths[1]}}  {origin}"


def _reference_lines() -> Iterator[str]:
    from trilogue.node.settings.table import TABLE

    yield "# Settings"
    yield ""
    yield "Printed by `trilogue config --markdown`; a test keeps this file and the table together."
    yield ""
    yield "A value comes from the strongest source that names it:"
    yield ""
    yield "1. a flag: `--data DIR`, `--listen LISTENER=HOST:PORT`,"
    yield "   `--advertise LISTENER=HOST:PORT`, `--ready-file PATH`, `--insecure`, `--salvage`"
    yield "2. `--set KEY=VALUE`"
    yield "3. the environment: `TRILOGUE_` and the key in capitals, `.` and `-` as `_`"
    yield "   (`TRILOGUE_TOPICS_RETENTION=1d`)"
    yield "4. the config file, TOML: `--config FILE`, or `TRILOGUE_CONFIG`, or else the first of"
    yield "   `~/.config/trilogue/trilogue.toml` and `/etc/trilogue/trilogue.toml`"
    yield '   (`[topics]` / `retention = "1d"`)'
    yield "5. `secure.toml` in the data directory, where `trilogue serve --secure` wrote it"
    yield "6. the default"
    yield ""
    yield "`trilogue config` shows each value and where it came from. An unknown key is refused."
    yield "Sizes take B, KiB, MiB, GiB, TiB (and kB, MB, GB, TB); a bare number is bytes. Durations"
    yield "take ms, s, min, h, d; a bare number is milliseconds."
    yield ""
    yield "| key | kind | default | accepted | meaning |"
    yield "|---|---|---|---|---|"
    for row in TABLE:
        default = f"`{row.default}`" if row.default else ""
        cells = (f"`{row.key}`", row.kind.value, default, row.accepted, row.doc)
        yield f"| {' | '.join(cells)} |"
    yield ""
