"""`trilogue serve`: run a server until it is told to stop."""

from __future__ import annotations

import gc

import typer

from trilogue.cli.options import (
    AdvertiseOption,
    ConfigOption,
    DataOption,
    InsecureOption,
    ListenOption,
    ReadyFileOption,
    SalvageOption,
    SetOption,
    leave,
    settings_from,
)


def serve(
    *,
    data: DataOption = None,
    config: ConfigOption = None,
    listen: ListenOption = None,
    advertise: AdvertiseOption = None,
    assignments: SetOption = None,
    ready_file: ReadyFileOption = None,
    insecure: InsecureOption = False,
    salvage: SalvageOption = False,
) -> None:
    """Run a server. SIGTERM or Ctrl-C drains it; a second one makes that faster."""
    gc.disable()  # nothing that is made during the start is garbage; `life` turns it on again
    settings = settings_from(
        data=data,
        config=config,
        listen=listen,
        advertise=advertise,
        assignments=assignments,
        ready_file=ready_file,
        insecure=insecure,
        salvage=salvage,
    )
    from trilogue.node.errors import StartError
    from trilogue.node.life import run

    try:
        code = run(settings, say=typer.echo)
    except StartError as error:
        leave(str(error), error.code)
    raise typer.Exit(code)
