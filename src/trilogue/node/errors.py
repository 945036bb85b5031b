"""Errors of a start, with their exit codes, and of requests of administrators."""

from __future__ import annotations

START_FAILED = 1
WRONG_SETTING = 2
STORAGE_FAILED = 3


class StartError(Exception):
    """The server cannot start; the text is the reason in one line, `code` the exit code."""

    def __init__(self, message: str, code: int = START_FAILED) -> None:
        super().__init__(message)
        self.code = code


class ControlError(Exception):
    """A request that is refused, or a supervisor that does not answer; the text is for users."""
