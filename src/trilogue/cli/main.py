"""The `trilogue` command: one file per verb, and only the verb that was asked for is loaded."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from trilogue import __version__

# Each verb is a module of this name with a function of this name; the order is that of `--help`.
VERBS = ("serve", "demo", "config", "doctor", "codec", "version")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; the exit code leaves by SystemExit."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    build(given[:1])(given, prog_name="trilogue")


def build(asked: Sequence[str] = ()) -> Callable[..., object]:
    """Make the command with the one verb that is asked for, or with all of them."""
    app = typer.Typer(
        help="A durable broker for Kafka, Pulsar and TubeMQ clients; topics are tables too.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for verb in [name for name in VERBS if name in asked] or VERBS:
        module = importlib.import_module(f"trilogue.cli.{verb}")
        app.command(verb)(getattr(module, verb))
    return typer.main.get_command(app)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"trilogue {__version__}")
        raise typer.Exit


VersionOption = Annotated[
    bool,
    typer.Option(
        "--version", callback=_print_version, is_eager=True, help="Print the version and leave."
    ),
]


def _root(*, version: VersionOption = False) -> None:
    del version  # seen to by its callback


if __name__ == "__main__":
    main()
