"""The options by which `serve` and `config` take settings, and how both turn them into values."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from trilogue.node.settings import Settings

USAGE_ERROR = 2

DataOption = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="The directory that holds everything."),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="A TOML file with settings."),
]
ListenOption = Annotated[
    list[str] | None,
    typer.Option(
        "--listen",
        metavar="DOOR=HOST:PORT",
        help="Where a door (kafka, pulsar, tubemq-master, tubemq-broker, http) listens; port 0 "
        "takes a free one; DOOR=off closes it.",
    ),
]
AdvertiseOption = Annotated[
    list[str] | None,
    typer.Option(
        "--advertise", metavar="DOOR=HOST:PORT", help="What clients of a door are told to use."
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any setting; `trilogue config` lists them."),
]
ReadyFileOption = Annotated[
    Path | None,
    typer.Option(
        "--ready-file", metavar="PATH", help="Write process id and addresses when doors answer."
    ),
]
InsecureOption = Annotated[
    bool,
    typer.Option(
        "--insecure", help="Let doors without TLS and authentication be reached from outside."
    ),
]
SalvageOption = Annotated[
    bool,
    typer.Option(
        "--salvage", help="Start although acknowledged data is damaged; says what is lost."
    ),
]


def settings_from(
    *,
    data: Path | None,
    config: Path | None,
    listen: list[str] | None,
    advertise: list[str] | None,
    assignments: list[str] | None,
    ready_file: Path | None,
    insecure: bool,
    salvage: bool = False,
) -> Settings:
    """Read all sources, or leave with exit code 2 and one line that says what is wrong."""
    from trilogue.node.settings import SettingsError
    from trilogue.node.sources import door_flag, load_settings

    try:
        flags = [door_flag("listen", text) for text in listen or ()]
        flags += [door_flag("advertise", text) for text in advertise or ()]
        if data is not None:
            flags.append(("data", str(data), "--data"))
        if ready_file is not None:
            flags.append(("ready-file", str(ready_file), "--ready-file"))
        if insecure:
            flags.append(("insecure", "true", "--insecure"))
        if salvage:
            flags.append(("salvage", "true", "--salvage"))
        return load_settings(
            environment=os.environ,
            config_file=config,
            assignments=assignments or (),
            flags=flags,
        )
    except SettingsError as error:
        leave(str(error), USAGE_ERROR)


def leave(message: str, code: int) -> NoReturn:
    """Say on stderr why the command ends, in one line, and end it."""
    print(f"trilogue: {message}", file=sys.stderr)
    raise typer.Exit(code)
