"""The `trilogue` command: one file per verb, and only the verb that was asked for is loaded."""

from __future__ import annotations

import copy
import gc
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, NoReturn

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
    "groups": "List, describe, reset and delete groups of readers.",
    "subscriptions": "See who reads topics, by all protocols.",
    "doctor": "Say what this installation is made of.",
    "config": "Print every setting with its value and where that came from.",
    "codec": "Print the code generated for a Kafka message.",
    "completion": "Print what a shell runs to complete verbs, options and names.",
    "version": "Print the version.",
}


QUICK = frozenset(VERBS) - {"serve", "demo"} | {"complete"}
"""Verbs that are done when they are done: nothing is tidied that goes with the process anyway."""
READER_GONE = 141


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; the exit code leaves by SystemExit, or with the process."""
    if arguments is not None:
        _run(list(arguments))
    elif sys.argv[1:2] and sys.argv[1] in QUICK:
        _run_and_end(sys.argv[1:])
    else:
        _run(sys.argv[1:])


def _run_and_end(given: list[str]) -> NoReturn:
    """Half the time between the answer and the prompt would go into taking modules down."""
    gc.disable()  # nothing that is made during the start is garbage; `asking` turns it on again
    code: object = 0
    try:
        _run(given)
    except SystemExit as ended:
        code = ended.code
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        code = READER_GONE
    os._exit(code if isinstance(code, int) else int(code is not None))


def _run(given: list[str]) -> None:
    if given[:1] == ["complete"]:  # what shells ask; its arguments are not its own
        from trilogue.cli.complete import complete

        complete(given[1:])
        return
    build(given[:2])(given, prog_name="trilogue")


def build(asked: Sequence[str] = ()) -> Callable[..., object]:
    """Make the command with the verb that is asked for and the one below it, or with names alone.

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
    if first not in VERBS:
        for verb, sentence in VERBS.items():  # enough to say what there is, or what was meant
            app.command(verb, help=sentence)(_nothing)
    else:
        module = importlib.import_module(f"trilogue.cli.{first}")
        if hasattr(module, "app"):
            below: typer.Typer = copy.copy(module.app)
            one = [command for command in below.registered_commands if command.name == second]
            below.registered_commands = one or below.registered_commands
            app.add_typer(below, name=first)
        else:
            app.command(first)(getattr(module, first))
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
