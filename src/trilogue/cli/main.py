"""The `trilogue` command: one file per verb, and only the verb that was asked for is loaded."""

from __future__ import annotations

import copy
import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from trilogue import __version__

# Each verb is a module of this name with a function of this name, or with an `app` of further
# verbs; the order is that of `--help`.
VERBS = {
    "serve": "Run a server.",
    "demo": "See all of it work on real data: three protocols, one log, Spark.",
    "topics": "List, describe, create, alter, trim and delete topics.",
    "produce": "Send messages: lines, files, JSON.",
    "consume": "Print messages, from a place to a place.",
    "doctor": "Say what this installation is made of.",
    "config": "Print every setting with its value and where that came from.",
    "codec": "Print the code generated for a Kafka message.",
    "version": "Print the version.",
}
HIDDEN = ("complete",)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; the exit code leaves by SystemExit."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    build(given[:2])(given, prog_name="trilogue")


def build(asked: Sequence[str] = ()) -> Callable[..., object]:
    """Make the command with the verb that is asked for, and the one below it, or with all of them.

    What an option means is worked out when its verb is made, which takes a millisecond each.
    """
    app = typer.Typer(
        help="A durable broker for Kafka, Pulsar and TubeMQ clients; topics are tables too.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    first, second = [*asked, "", ""][:2]
    if first not in {*VERBS, *HIDDEN}:
        for verb, sentence in VERBS.items():  # enough to say what there is, or what was meant
            app.command(verb, help=sentence)(_nothing)
    for verb in [name for name in (*VERBS, *HIDDEN) if name == first]:
        module = importlib.import_module(f"trilogue.cli.{verb}")
        if hasattr(module, "app"):
            below: typer.Typer = copy.copy(module.app)
            one = [command for command in below.registered_commands if command.name == second]
            below.registered_commands = one or below.registered_commands
            app.add_typer(below, name=verb)
        else:
            app.command(verb, hidden=verb in HIDDEN)(getattr(module, verb))
    return typer.main.get_command(app)


def _nothing() -> None:
    """Stands for a verb that nobody asked for."""


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
