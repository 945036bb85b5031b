"""Levels of the broker's loggers, described and altered by Kafka clients."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.gateway.kafka.configs.test_configs import (
    APPEND,
    DELETE,
    SET,
    change,
    code,
    describe,
    replace,
)
from tests.gateway.kafka.rig import Rig
from tests.gateway.loop import on_loop
from trilogue.gateway.kafka.configs.loggers import LEVELS, level_name

LOGGER = 8
STREAM = "trilogue.gateway.stream"


@pytest.fixture(autouse=True)
def _levels() -> Iterator[None]:
    before = {name: logging.getLogger(name).level for name in (None, STREAM)}
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


@on_loop
async def test_root_logger_and_loggers_of_trilogue_are_described():
    async with Rig() as rig:
        logging.getLogger().setLevel(logging.WARNING)
        logging.getLogger(STREAM).setLevel(logging.DEBUG)

        (result,) = (await rig.peer().request(describe("1", kind=LOGGER), 4)).results

        reported = {each.name: each for each in result.configs}
        assert (reported["root"].value, reported[STREAM].value) == ("WARN", "DEBUG")
        assert (reported[STREAM].config_source, reported[STREAM].config_type) == (6, 0)
        assert all(name == "root" or name.startswith("trilogue") for name in reported)


@on_loop
async def test_a_level_is_changed_at_once_and_given_back():
    async with Rig() as rig:
        logging.getLogger().setLevel(logging.WARNING)
        peer = rig.peer()

        assert code(await peer.request(change("1", (STREAM, SET, "TRACE"), kind=LOGGER), 1)) == 0
        assert logging.getLogger(STREAM).level == LEVELS["TRACE"]
        assert code(await peer.request(change("1", (STREAM, DELETE, None), kind=LOGGER), 1)) == 0
        assert logging.getLogger(STREAM).getEffectiveLevel() == logging.WARNING
        assert not rig.meta.state.settings


@on_loop
async def test_validation_alone_changes_no_level():
    async with Rig() as rig:
        before = logging.getLogger(STREAM).level
        requested = change("1", (STREAM, SET, "ERROR"), kind=LOGGER, validate_only=True)

        assert code(await rig.peer().request(requested, 1)) == 0
        assert logging.getLogger(STREAM).level == before


REFUSED = {
    "level": (change("1", ("root", SET, "LOUD"), kind=LOGGER), 40),
    "no level": (change("1", ("root", SET, None), kind=LOGGER), 40),
    "logger": (change("1", ("trilogue.no.such", SET, "INFO"), kind=LOGGER), 40),
    "not ours": (change("1", ("asyncio", SET, "DEBUG"), kind=LOGGER), 40),
    "the first": (change("1", ("root", DELETE, None), kind=LOGGER), 42),
    "list": (change("1", ("root", APPEND, "INFO"), kind=LOGGER), 42),
    "twice": (change("1", (STREAM, SET, "INFO"), (STREAM, SET, "WARN"), kind=LOGGER), 42),
    "half wrong": (change("1", (STREAM, SET, "INFO"), ("root", SET, "LOUD"), kind=LOGGER), 40),
    "all at once": (replace("1", LOGGER, root="INFO"), 42),
}


@pytest.mark.parametrize("kind", REFUSED)
@on_loop
async def test_invalid_logger_change_is_refused_and_changes_nothing(kind):
    requested, expected = REFUSED[kind]
    async with Rig() as rig:
        before = [logging.getLogger(name).level for name in (None, STREAM)]

        (result,) = (await rig.peer().request(requested, 1)).responses

        assert (result.error_code, bool(result.error_message)) == (expected, True)
        assert [logging.getLogger(name).level for name in (None, STREAM)] == before


@pytest.mark.parametrize(
    ("level", "word"),
    [(0, "TRACE"), (10, "DEBUG"), (15, "INFO"), (30, "WARN"), (50, "FATAL"), (60, "FATAL")],
)
def test_a_level_is_called_by_what_it_lets_through(level, word):
    assert level_name(level) == word
