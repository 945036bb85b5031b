"""Completions of a command line, for the scripts of shells (completion.py).

    trilogue complete --line "trilogue topics desc"       from bash: one text
    trilogue complete --words topics describe ord         from zsh and fish

Each completion is a line: a word, a tab and its description; `:files` stands for file names. Verbs
and options come from their definitions, topics and groups from the cluster if it responds within a
second. After an error nothing is completed or printed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from trilogue.client.kafka.cluster import KafkaCluster

ANSWER_S: Final = 1.0
FILES: Final = ":files"
FILE_METAVARS: Final = ("FILE", "DIR", "PATH", "TARGET", "SOURCE")  # those of backups, too
BREAKS: Final = ":="
"""Characters at which bash begins a new word, also inside quotes."""
PLACES: Final = ("beginning", "end", "-1h", "-1d")
VALUES: Final[dict[str, tuple[str, ...]]] = {
    "--codec": ("none", "gzip", "snappy", "lz4", "zstd"),
    "--acks": ("all", "1", "0"),
    "--from": PLACES,
    "--until": PLACES,
    "--to": PLACES,
    "--before": PLACES,
    "--state": ("Stable", "Empty", "PreparingRebalance", "CompletingRebalance", "Dead"),
    "--type": ("classic", "consumer"),
    "--way": ("decode", "encode", "gather"),
    "shell": ("bash", "zsh", "fish"),
}
Found = Iterator[tuple[str, str]]


def complete(arguments: Sequence[str]) -> None:
    """Print the completions of the last word."""
    how, *words = [*arguments, ""]
    broken = ""
    if how == "--line":
        words = _split(words[0])
        broken = words[-1] if words else ""
    elif how == "--words":
        words = words[:-1]
    if not words:
        return
    partial = words[-1]
    cut = max(broken.rfind(mark) for mark in BREAKS) + 1
    for word, meaning in sorted(set(_found(words[:-1], partial))):
        if word.startswith(partial) or word == FILES:
            print(f"{word[cut:]}\t{meaning}" if meaning else word[cut:])


def _split(line: str) -> list[str]:
    """Return the words of a line after the first; the last is the one to complete."""
    import shlex

    try:
        words = shlex.split(line)
    except ValueError:  # a quote is open
        words = line.split()
    return [*words[1:], *([""] if not words or line[-1:].isspace() else [])]


def _found(before: Sequence[str], partial: str) -> Found:
    from trilogue.cli.verbs import VERBS, build_command

    if not before:
        yield from VERBS.items()
        return
    if before[0] not in VERBS:
        return
    root: Any = build_command(before[:2])
    command, rest = root.commands[before[0]], list(before[1:])
    if hasattr(command, "commands"):
        if not rest:
            for name, one in command.commands.items():
                yield name, one.get_short_help_str(60)
            return
        command = command.commands.get(rest[0])
        if command is None:
            return
        rest = rest[1:]
    yield from _of_command(command, rest, partial)


def _of_command(command: Any, rest: Sequence[str], partial: str) -> Found:
    options = {name: one for one in command.params for name in one.opts if name[:1] == "-"}
    if rest and rest[-1] in options and not _is_flag(options[rest[-1]]):
        yield from _values(options[rest[-1]], rest)
        return
    if partial.startswith("-"):
        for one in command.params:
            for name in one.opts:
                if name.startswith("--"):
                    yield name, (one.help or "").partition(".")[0]
        yield "--help", ""
        return
    arguments = [one for one in command.params if one.opts[0][:1] != "-"]
    at = len(_positional(rest, options))
    if arguments:
        wanted = arguments[min(at, len(arguments) - 1)]
        if at < len(arguments) or wanted.nargs == -1:
            yield from _values(wanted, rest)


def _is_flag(option: Any) -> bool:
    return bool(getattr(option, "is_flag", False))


def _positional(rest: Sequence[str], options: dict[str, Any]) -> list[str]:
    found: list[str] = []
    takes = False
    for word in rest:
        if takes:
            takes = False
        elif word.startswith("-") and word != "-":
            takes = word in options and not _is_flag(options[word])
        else:
            found.append(word)
    return found


def _values(one: Any, rest: Sequence[str]) -> Found:
    for name in (*one.opts, one.name):
        if name in VALUES:
            for value in VALUES[name]:
                yield value, ""
            return
    metavar = one.metavar or ""
    if "TOPIC" in metavar:
        yield from _query_names(rest, _topics)
    elif "GROUP" in metavar or "SUBSCRIPTION" in metavar:
        yield from _query_names(rest, _groups)
    elif any(place in metavar for place in FILE_METAVARS):
        yield FILES, ""
    elif one.name == "api":
        from trilogue.wire.kafka.api import NAMES

        for name, *_ in NAMES.values():
            yield "".join(f"_{c.lower()}" if c.isupper() else c for c in name)[1:], ""


def _query_names(rest: Sequence[str], what: Callable[[KafkaCluster], Any]) -> Found:
    import asyncio

    from trilogue.cli.cluster import (
        CLIENT_CONFIG_VARIABLE,
        DEFAULT_SERVER,
        SERVER_VARIABLE,
        make_cluster,
        read_client_options,
    )

    if config := _find_option(rest, "--config"):
        os.environ[CLIENT_CONFIG_VARIABLE] = config
    server = _find_option(rest, "--server", "-s")

    async def names() -> list[str]:
        configured, options = read_client_options()
        named = server or configured or os.environ.get(SERVER_VARIABLE) or DEFAULT_SERVER
        cluster = make_cluster(named, ANSWER_S, options)
        try:
            async with asyncio.timeout(ANSWER_S):
                await cluster.any_connection()
                return list(await what(cluster))
        finally:
            await cluster.close()

    with suppress(Exception):  # a prompt is no place for errors
        for name in asyncio.run(names()):
            yield name, ""


async def _topics(cluster: KafkaCluster) -> list[str]:
    return await cluster.topic_names()


async def _groups(cluster: KafkaCluster) -> list[str]:
    from trilogue.cli.groups.report import admin

    return [one.name for one in await admin(cluster).list_groups()]


def _find_option(words: Sequence[str], *names: str) -> str:
    """Return the value of an option that is typed already; empty where it is not."""
    for at, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name in names:
            return value if equals else words[at + 1] if at + 1 < len(words) else ""
    return ""
