"""The `trilogue` command: one module per verb, of which a call loads one."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from trilogue import __version__

SERVING = frozenset({"serve", "demo"})
"""Verbs that own processes or files, which the interpreter's normal exit cleans up."""
READER_GONE = 141
"""The exit code when the reader of a pipe has closed it: 128 + SIGPIPE."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; the exit code leaves by SystemExit, or with the process."""
    if arguments is not None:
        _run(list(arguments))
    elif sys.argv[1:2] and sys.argv[1][0] != "-" and sys.argv[1] not in SERVING:
        _run_and_exit(sys.argv[1:])
    else:
        if sys.argv[1:2] == ["serve"]:
            gc.disable()  # a start makes no garbage; garbage_collector.configure enables it
        _run(sys.argv[1:])


def _run_and_exit(words: list[str]) -> NoReturn:
    """Run and end the process at once: unloading modules takes as long as a short command."""
    gc.disable()  # a start makes no garbage; cluster._until_terminated enables it
    code: object = 0
    try:
        _run(words)
    except SystemExit as exit_:
        code = exit_.code
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        code = READER_GONE
    os._exit(code if isinstance(code, int) else int(code is not None))


def _run(words: list[str]) -> None:
    if words in (["version"], ["--version"]):  # without Typer, which takes most of the time
        print(f"trilogue {__version__}")
    elif words[:1] == ["complete"]:  # for shells; its arguments are the words to complete
        from trilogue.cli.complete import complete

        complete(words[1:])
    else:
        from trilogue.cli.verbs import build_command

        build_command(words[:2])(words, prog_name="trilogue")


if __name__ == "__main__":
    main()
