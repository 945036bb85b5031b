"""Shared by all tests: what is left out of a quick run, and what one module leaves behind."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator

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


@pytest.fixture(scope="module")
def foreign_garbage() -> Iterator[None]:
    """Foreign clients leave sockets to the collector: collect them here, where nobody minds, and
    not in some later test, where the warning would fail it."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()
