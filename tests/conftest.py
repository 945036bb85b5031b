"""Shared by all tests: what is left out of a quick run, what one module leaves behind, and how
several processes share the tests out."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Generator

import pytest

from tests import sharing

LONG = "long"
HYPOTHESIS_SETTINGS = "_hypothesis_internal_use_settings"
FOREIGN = {"cli", "client", "conformance", "crash", "docs", "node", "spark"}
seed_key = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[seed_key] = sharing.seed_of_the_run(config)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: object) -> None:
    """What another process has to know."""
    node.workerinput[sharing.SEED] = node.config.stash[seed_key]  # type: ignore[attr-defined]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object | None:
    return sharing.scheduler(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests marked `long` run only where `-m` names the mark (`-m "long or not long"`)."""
    sharing.put_in_order(config, items)
    if LONG in config.getoption("markexpr"):
        return
    left_out = [item for item in items if item.get_closest_marker(LONG)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker(LONG)]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Hypothesis' plugin wraps the settings of a function once more for each of its parameters.

    From some 950 on, asking the outermost for its database goes too deep.
    """
    function = getattr(getattr(item, "obj", None), "__func__", getattr(item, "obj", None))
    settings = getattr(function, HYPOTHESIS_SETTINGS, None)
    yield
    if settings is not None:
        setattr(function, HYPOTHESIS_SETTINGS, settings)


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


@pytest.fixture(scope="session")
def seed(request: pytest.FixtureRequest) -> int:
    """Of all chance that tests take, unless they have a seed of their own."""
    return request.config.stash[seed_key]


@pytest.fixture
def tell(request: pytest.FixtureRequest) -> Callable[[object], None]:
    """Adds a line about this test to the end of the run."""
    return lambda text: sharing.tell(request.node, f"{request.node.name}: {text}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if lines := sharing.told(terminalreporter):
        seed = terminalreporter.config.stash[seed_key]
        terminalreporter.section(f"what tests told (TRILOGUE_SEED={seed})")
        for line in lines:
            terminalreporter.write_line(line)
