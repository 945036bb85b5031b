"""Shared by all tests: what is left out of a quick run, and what one module leaves behind."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Generator

import pytest

LONG = "long"
FOREIGN = {"cli", "client", "conformance", "crash", "docs", "node", "spark"}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests marked `long` run only where `-m` names the mark (`-m "long or not long"`)."""
    if LONG in config.getoption("markexpr"):
        return
    left_out = [item for item in items if item.get_closest_marker(LONG)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker(LONG)]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, None, None]:
    """Foreign clients leave sockets to the collector: collect them after each module that has such
    clients, where nobody minds, and not in some later test, where the warning would fail it."""
    yield
    if item.path.parent.name in FOREIGN and (nextitem is None or nextitem.path != item.path):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gc.collect()
