"""Runs verbs as a shell does, against a server: in this process, since starts take longer."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

from tests.server import clean_environment
from trilogue.cli.main import main


@dataclass(frozen=True)
class Shell:
    """A terminal with TRILOGUE_BOOTSTRAP set."""

    server: str
    http: str = ""

    def run(
        self, *arguments: str, stdin: str | bytes = b"", code: int = 0
    ) -> subprocess.CompletedProcess[str]:
        """One verb to its end, which must have this exit code."""
        given = {"TRILOGUE_BOOTSTRAP": self.server, "TRILOGUE_HTTP": self.http}
        environment = clean_environment({name: text for name, text in given.items() if text})
        output, errors = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
        with (
            _file(stdin.encode() if isinstance(stdin, str) else stdin) as taken,
            mock.patch.dict(os.environ, environment, clear=True),
            mock.patch.object(sys, "stdin", taken),
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(errors),
        ):
            ended = _exit_code(arguments)
        body = subprocess.CompletedProcess(arguments, ended, _text(output), _text(errors))
        assert body.returncode == code, (arguments, body.returncode, body.stdout, body.stderr)
        return body

    def lines(self, *arguments: str, stdin: str | bytes = b"") -> list[str]:
        return self.run(*arguments, stdin=stdin).stdout.splitlines()

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "--json").stdout)

    def objects(self, *arguments: str) -> list[dict[str, Any]]:
        """A JSON object a line."""
        return [json.loads(line) for line in self.lines(*arguments, "--json")]

    def refused(self, *arguments: str, code: int = 1, stdin: str | bytes = b"") -> str:
        return self.run(*arguments, code=code, stdin=stdin).stderr


def _exit_code(arguments: tuple[str, ...]) -> int:
    try:
        main(arguments)
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def _text(taken: io.TextIOWrapper) -> str:
    taken.flush()
    octets = taken.buffer
    assert isinstance(octets, io.BytesIO)
    return octets.getvalue().decode()


@contextlib.contextmanager
def _file(content: bytes) -> Iterator[io.TextIOWrapper]:
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.seek(0)
        yield io.TextIOWrapper(file)
