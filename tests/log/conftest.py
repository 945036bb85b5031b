"""Tells at the end how many steps the model test took."""

from __future__ import annotations

import sys

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for each run of the model."""
    run = sys.modules.get("tests.log.model_run")
    for line in run.REPORTS if run else ():
        terminalreporter.write_line(line)
