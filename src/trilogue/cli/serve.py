"""`trilogue serve`: run a server until a signal stops it."""

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
    exit_with_error,
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
    """Run a server. SIGTERM, SIGHUP or Ctrl-C drains it; a second one skips the last flush."""
    gc.disable()  # a start makes no garbage; garbage_collector.configure enables it
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
    from trilogue.node.process import run

    try:
        code = run(settings, write_line=typer.echo)
    except StartError as error:
        exit_with_error(str(error), error.code)
    raise typer.Exit(code)
