"""Shared by all tests: what is left out of a quick run."""

from __future__ import annotations

import pytest

LONG = "long"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests marked `long` run only where `-m` names the mark (`-m "long or not long"`)."""
    if LONG in config.getoption("markexpr"):
        return
    left_out = [item for item in items if item.get_closest_marker(LONG)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker(LONG)]
