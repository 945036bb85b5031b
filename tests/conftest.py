"""Shared by all tests: what is left out of a quick run, what one module leaves behind, and how
several processes share the tests out."""

from __future__ import annotations

import functools
import gc
import os
import shutil
import signal
import warnings
from collections.abc import Callable, Generator
from pathlib import Path

import httpx
import httpx._transports.default as httpx_transports
import pytest
from hypothesis import settings

from tests import sharing

LONG, FULL = sharing.LONG, "full"
HYPOTHESIS_SETTINGS = "_hypothesis_internal_use_settings"
FOREIGN = {"cli", "client", "conformance", "crash", "docs", "demo", "node", "spark"}
seed_key = pytest.StashKey[int]()
made_key = pytest.StashKey[dict[object, list[Path]]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[seed_key] = sharing.seed_of_the_run(config)
    # No deadline: other work shares the machine. Each run draws other examples.
    examples = 100 if config.getoption("markexpr") else 25
    settings.register_profile("trilogue", deadline=None, max_examples=examples)
    settings.load_profile("trilogue")
    wait_longer_for_http()
    share_tls_context_of_http()
    ignore_hangups_alone()


def ignore_hangups_alone() -> None:
    """Under nohup, servers that are started would ignore SIGHUP too, by which they read settings.

    A signal with a handler is ignored by this process, and not by those that it starts.
    """
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda _number, _frame: None)


def wait_longer_for_http() -> None:
    """A request of httpx without a limit fails after 5 s, which a shared machine may need."""
    limits = (httpx.get.__kwdefaults__ or {})["timeout"]
    limits.connect = limits.read = limits.write = limits.pool = 60.0


def share_tls_context_of_http() -> None:
    """Clients of httpx without TLS options share one context.

    Each of them, and so each `httpx.get()`, would load the certificates of all authorities: 60 ms.
    """
    make = httpx_transports.create_ssl_context
    defaults = (True, None, True)
    make_shared = functools.cache(lambda environment: make())

    def create(verify: object = True, cert: object = None, trust_env: bool = True) -> object:
        if (verify, cert, trust_env) != defaults:
            return make(verify, cert, trust_env)
        return make_shared((os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")))

    httpx_transports.create_ssl_context = create


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: object) -> None:
    """What another process has to know."""
    node.workerinput[sharing.SEED] = node.config.stash[seed_key]  # type: ignore[attr-defined]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object | None:
    return sharing.scheduler(config, log)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A whole run neither imports nor lists files of which it runs nothing."""
    return sharing.is_left_out(config, collection_path) or None


@pytest.hookimpl(specname="pytest_collection", wrapper=True)
def collect_without_garbage_collector(session: pytest.Session) -> Generator[None, object, object]:
    """Modules and items live as long as the run: the collector never visits them."""
    gc.disable()
    try:
        sharing.import_share(session.config)
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class, name: str, obj: object
) -> list[pytest.Item] | None:
    """No tests of a function of which a whole run has none."""
    is_test = name.startswith("test_") and callable(obj)
    return [] if is_test and sharing.is_function_left_out(collector, name) else None


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Marks by place (tests/sharing.py)."""
    if sharing.is_rare(item):
        item.add_marker(LONG)
    elif sharing.is_full(item):
        item.add_marker(FULL)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests marked `full` or `long` run only where `-m` names the mark; `long` names both."""
    sharing.put_in_order(config, items)
    named = config.getoption("markexpr")
    without = [] if LONG in named else [LONG] if FULL in named else [LONG, FULL]
    stays: dict[bool, list[pytest.Item]] = {True: [], False: []}
    for item in items:
        stays[not any(map(item.get_closest_marker, without))].append(item)
    if stays[False]:
        config.hook.pytest_deselected(items=stays[False])
        items[:] = stays[True]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Hypothesis' plugin wraps the settings of a function once more for each of its parameters.

    From some 950 on, a lookup of the outermost one's database exceeds the recursion limit.
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
    """Foreign clients leave sockets to the garbage collector: collect them after each module with
    such clients, and not in some later test, which the warning would fail."""
    yield
    if FOREIGN.intersection(item.path.relative_to(item.config.rootpath).parts) and (
        nextitem is None or nextitem.path != item.path
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gc.collect()


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Notes which directories a fixture makes by `tmp_path_factory`.

    pytest keeps them to the end of the session: 17 GB with the nodes of all modules.
    """
    if "tmp_path_factory" not in fixturedef.argnames:
        return (yield)
    factory = request.getfixturevalue("tmp_path_factory")
    made, mktemp = [], factory.mktemp
    factory.mktemp = lambda *names, **options: made.append(mktemp(*names, **options)) or made[-1]
    try:
        return (yield)
    finally:
        del factory.mktemp
        request.config.stash.setdefault(made_key, {})[fixturedef] = made


def pytest_fixture_post_finalizer(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> None:
    """Removes the directories of a fixture that has ended, unless a test failed, for a look."""
    made = request.config.stash.get(made_key, {}).pop(fixturedef, ())
    for folder in () if request.session.testsfailed else made:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def seed(request: pytest.FixtureRequest) -> int:
    """Of all chance that tests take, unless they have a seed of their own."""
    return request.config.stash[seed_key]


@pytest.fixture
def report(request: pytest.FixtureRequest) -> Callable[[object], None]:
    """Adds a line about this test to the end of the run."""
    return lambda text: sharing.report(request.node, f"{request.node.name}: {text}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if lines := sharing.reported_lines(terminalreporter):
        seed = terminalreporter.config.stash[seed_key]
        terminalreporter.section(f"reports of the tests (TRILOGUE_SEED={seed})")
        for line in lines:
            terminalreporter.write_line(line)
