"""The verbs of the command line, and the Typer command of the one that is called.

`trilogue --help` needs names only. A call loads the module of its verb alone: defining the options
of a verb takes about a millisecond each.
"""

from __future__ import annotations

import copy
import functools
import importlib
import inspect
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from trilogue import __version__
from trilogue.cli.cluster import CLIENT_CONFIG_VARIABLE, choose_server

VERBS = {
    "serve": "Run a server.",
    "demo": "Show the product on real data: three protocols, one log, Spark.",
    "status": "Show whether a node serves, its load, and the readers that lag.",
    "topics": "List, describe, create, alter, trim and delete topics.",
    "produce": "Send messages: lines, files, JSON.",
    "consume": "Print messages, from a position to a position.",
    "groups": "List, describe, reset and delete consumer groups.",
    "nodes": "List and describe the nodes of a cluster, move slots between them.",
    "transactions": "List, describe and abort transactions, of Kafka's and Pulsar's clients.",
    "subscriptions": "List the readers of topics, of all protocols.",
    "table": "Copy topics to tables of Delta, Iceberg or Parquet, exactly once.",
    "pipeline": "Run declared pipelines of tables, views and sinks on Spark.",
    "users": "Create, list and delete users; passwords and tokens.",
    "acls": "List, add and remove ACLs, in Kafka's words.",
    "backup": "Copy the data of a server while it runs: to a folder or to S3.",
    "restore": "Make a data directory from a backup.",
    "upgrade-check": "Check whether this version serves a data directory, and what it changes.",
    "doctor": "Check this installation, its data, or a running server.",
    "config": "Print every setting with its value and origin.",
    "codec": "Print the code generated for a Kafka message.",
    "completion": "Print a shell's completion script for verbs, options and names.",
    "version": "Print the version.",
}
"""Each verb is a function of its name in its module, or an `app` with verbs of its own.

The order is that of `--help`.
"""
MODULES = {
    "acls": "cli.access.acls",
    "backup": "cli.backups.backup",
    "consume": "cli.messages.consume",
    "demo": "demo.command",
    "groups": "cli.groups.command",
    "pipeline": "cli.pipeline_command",
    "produce": "cli.messages.produce",
    "restore": "cli.backups.restore",
    "subscriptions": "cli.subscriptions.command",
    "table": "cli.table_command",
    "topics": "cli.topics.command",
    "upgrade-check": "cli.upgrade_check",
    "users": "cli.access.users",
}
"""The module of each verb that is not `trilogue.cli.<verb>`."""


ClientConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="How to reach and log in to the server: key=value lines as librdkafka and Java read "
        "them (`clients/librdkafka.conf` of a secured data directory), instead of "
        "~/.config/trilogue/client.conf or /etc/trilogue/client.conf (the first that exists).",
        envvar=CLIENT_CONFIG_VARIABLE,
    ),
]


def _with_client_config(verb: Callable[..., object]) -> Callable[..., object]:
    """Add `--config FILE` to a verb that connects to a Kafka listener."""
    signature = inspect.signature(verb, eval_str=True)
    if "server" not in signature.parameters or "config" in signature.parameters:
        return verb

    @functools.wraps(verb)
    def run(*arguments: object, context: typer.Context, **options: Any) -> object:
        if (config := options.pop("config")) is not None:
            os.environ[CLIENT_CONFIG_VARIABLE] = str(config)
        source = context.get_parameter_source("server")
        if source is None or source.name != "COMMANDLINE":
            options["server"] = choose_server(options["server"])
        return verb(*arguments, **options)

    extra = {"context": typer.Context, "config": ClientConfigOption}
    run.__annotations__ = {**verb.__annotations__, **extra}
    parameters = [
        *signature.parameters.values(),
        *(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
            for name, kind in extra.items()
        ),
    ]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return run


def build_command(words: Sequence[str] = ()) -> Callable[..., object]:
    """Return the command line of the verb (and the verb below it) that `words` begins with.

    If it begins with no verb, the command has all verbs without their options.
    """
    app = typer.Typer(
        help="A durable broker for Kafka, Pulsar and TubeMQ clients; topics are tables too.",
        no_args_is_help=True,
        rich_markup_mode=None,  # the import of Rich takes longer than a short command
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    first, second = [*words, "", ""][:2]
    if first not in VERBS:
        for verb, sentence in VERBS.items():  # for --help, and to suggest a verb for a typo
            app.command(verb, help=sentence)(_placeholder)
    else:
        module = importlib.import_module(f"trilogue.{MODULES.get(first, f'cli.{first}')}")
        if hasattr(module, "app"):
            group: typer.Typer = copy.copy(module.app)
            called = [command for command in group.registered_commands if command.name == second]
            group.registered_commands = called or group.registered_commands
            for command in group.registered_commands:
                if command.callback is not None:
                    command.callback = _with_client_config(command.callback)
            app.add_typer(group, name=first)
        else:
            verb = getattr(module, first.replace("-", "_"))
            app.command(first)(_with_client_config(verb))
    return typer.main.get_command(app)


def _placeholder() -> None:
    """Stand for a verb that is listed and not called."""


def _print_version(is_given: bool) -> None:
    if is_given:
        typer.echo(f"trilogue {__version__}")
        raise typer.Exit


VersionOption = Annotated[
    bool,
    typer.Option(
        "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
    ),
]


def _root(*, version: VersionOption = False) -> None:
    del version  # its callback has used it
