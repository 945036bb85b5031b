"""Writes man pages of `trilogue` and its verbs, from their help, with click-man.

usage: python tools/man_pages.py VERSION FOLDER
"""

from __future__ import annotations

import sys
from inspect import cleandoc
from pathlib import Path
from typing import Any

from trilogue.cli.verbs import build_command

NAME = "trilogue"


def whole_command() -> Any:
    """The command line with the options of all verbs: a call loads those of one only."""
    root: Any = build_command()
    for name in root.commands:
        verb: Any = build_command([name])
        root.commands[name] = verb.commands[name]
    return root


def write_pages(command: Any, context: Any, version: str, folder: Path) -> None:
    """Write the page of a command, and those of the commands below it.

    click-man's own loop knows the options of click only; Typer has a click of its own.
    """
    from click_man.man import ManPage

    page = ManPage(context.command_path)
    page.version = version
    page.short_help = command.get_short_help_str(limit=100)
    page.description = cleandoc(command.help or "")
    page.synopsis = " ".join(command.collect_usage_pieces(context))
    page.options = [
        each.get_help_record(context)
        for each in command.get_params(context)
        if each.param_type_name == "option" and not each.hidden
    ]
    below = getattr(command, "commands", {})
    page.commands = [(name, each.get_short_help_str(limit=100)) for name, each in below.items()]
    (folder / f"{context.command_path.replace(' ', '-')}.1").write_text(str(page))
    for name, each in below.items():
        inner = context.__class__(each, info_name=name, parent=context)
        write_pages(each, inner, version, folder)


def main(version: str, folder: str) -> None:
    """Write all pages."""
    root = whole_command()
    write_pages(root, root.make_context(NAME, ["version"]), version, Path(folder))


if __name__ == "__main__":
    main(*sys.argv[1:])
