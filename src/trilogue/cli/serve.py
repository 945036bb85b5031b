"""`trilogue serve`: run a server until a signal stops it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NoReturn

import typer

from trilogue.cli.options import (
    USAGE_ERROR,
    AdvertiseOption,
    ClusterOption,
    ConfigOption,
    DataOption,
    InsecureOption,
    ListenOption,
    NodeOption,
    NodesOption,
    ReadyFileOption,
    SalvageOption,
    SecureOption,
    SetOption,
    TestOption,
    TestSecondsOption,
    exit_with_error,
    read_settings,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trilogue.node.settings.table import Settings


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
    nodes: NodesOption = None,
    cluster: ClusterOption = None,
    node: NodeOption = None,
    secure: SecureOption = False,
    test: TestOption = False,
    test_seconds: TestSecondsOption = None,
) -> None:
    """Run a server. SIGHUP reads settings again; SIGTERM or Ctrl-C drains, a second one hurries."""
    if test or test_seconds is not None:
        others = (config, listen, advertise, ready_file, nodes, cluster, node)
        _serve_test(
            data,
            assignments or [],
            test_seconds,
            is_alone=test and not (insecure or salvage or secure or any(others)),
        )

    _serve(
        partial(
            read_settings,
            data=data,
            config=config,
            listen=listen,
            advertise=advertise,
            assignments=assignments,
            ready_file=ready_file,
            insecure=insecure,
            salvage=salvage,
            nodes=nodes,
            cluster=cluster,
            node=node,
        ),
        secure=secure,
    )


def _serve(read: Callable[..., Settings], *, secure: bool) -> NoReturn:
    """Run the process that the settings describe, and exit with its code."""
    from trilogue.node.settings.table import SettingsError

    try:
        _run(read, secure=secure)
    except SettingsError as error:
        exit_with_error(str(error), USAGE_ERROR)


def _run(read: Callable[..., Settings], *, secure: bool) -> NoReturn:
    """Run the process; SettingsError."""
    in_cluster = bool(read(is_complete=not secure).text("cluster.url"))
    settings = read(is_complete=not (secure and in_cluster))
    from trilogue.node.errors import StartError
    from trilogue.node.process import run
    from trilogue.node.supervisor.slots import needs_supervisor

    again = partial(read, is_complete=True)
    try:
        if in_cluster:
            from trilogue.node.cluster.start import cluster_place

            place = cluster_place(settings)
            if secure:
                from trilogue.node.secure.cluster import secure_cluster

                assert place.cluster is not None
                for line in secure_cluster(settings, place.cluster.owners):
                    typer.echo(line)
                settings = again()
            code = run(settings, write_line=typer.echo, place=place, read_settings=again)
            raise typer.Exit(code)
        if secure:
            from trilogue.node.secure.setup import secure_directory

            for line in secure_directory(settings):
                typer.echo(line)
            settings = again()
        if needs_supervisor(settings):
            from trilogue.node.supervisor.supervisor import supervise

            code = supervise(settings, write_line=typer.echo, read_settings=again)
        else:
            code = run(settings, write_line=typer.echo, read_settings=again)
    except StartError as error:
        exit_with_error(str(error), error.code)
    raise typer.Exit(code)


def _serve_test(
    data: Path | None, assignments: list[str], seconds: float | None, *, is_alone: bool
) -> NoReturn:
    """Run a server for tests, and exit."""
    if not is_alone:
        exit_with_error(
            "--test serves on free ports of this machine; it goes with --data, --set and "
            "--test-seconds only",
            USAGE_ERROR,
        )
    from trilogue.node.errors import StartError
    from trilogue.testing.server import run_test_server

    try:
        run_test_server(data=data, assignments=assignments, seconds=seconds, write_line=typer.echo)
    except StartError as error:
        exit_with_error(str(error), error.code)
    raise typer.Exit
