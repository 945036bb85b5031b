"""Settings of a broker's loggers: the least serious lines that each part of the server writes.

    root                      everything
    trilogue.gateway.stream   one module of it

Kafka's words for the levels stand for Python's. A change acts at once, is not kept, and ends with
the process, as in Kafka. A logger that nobody has made yet is not there.
"""

from __future__ import annotations

import logging

from trilogue.broker.errors import InvalidRequest, InvalidSetting
from trilogue.broker.setting import Kind, Setting, Standing
from trilogue.broker.settings import Change
from trilogue.gateway.kafka.config_kinds import (
    Carry,
    Changes,
    Told,
    Wanted,
    check_cluster,
    check_node,
)
from trilogue.gateway.kafka.config_rows import Source, told
from trilogue.gateway.kafka.shared import Call
from trilogue.wire.kafka.configs import DescribeConfigsRequest

ROOT = "root"
OURS = "trilogue"
LEVELS = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
NO_TYPE = 0
log = logging.getLogger(__name__)


class Loggers:
    """The loggers of this broker."""

    def describe(
        self, call: Call, name: str, wanted: Wanted, request: DescribeConfigsRequest
    ) -> Told:
        """Tell the level of each."""
        check_cluster(call)
        _check_name(call, name)
        found = []
        for key, logger in sorted(loggers().items()):
            if not wanted or key in wanted:
                row = Setting(key, Kind.STRING, "", _level, Standing.ACTS, "")
                each = told(row, spell(logger.getEffectiveLevel()), Source.LOGGER, (), request)
                each.config_type = NO_TYPE
                each.documentation = None
                found.append(each)
        return found

    async def alter(self, call: Call, name: str, changes: Changes, *, anew: bool) -> Carry:
        """Let loggers have other levels, all or none; nothing is to be recorded."""
        if anew:
            raise InvalidRequest("levels of loggers are changed one by one")
        check_cluster(call)
        _check_name(call, name)
        there, new = loggers(), {}
        for key, change, value in changes:
            if change in {Change.APPEND, Change.SUBTRACT}:
                raise InvalidRequest("a level is no list")
            if key not in there:
                raise InvalidSetting(f"there is no logger {key[:100]!r}")
            if key in new:
                raise InvalidRequest(f"{key} is changed more than once")
            if change is Change.RESET and key == ROOT:
                raise InvalidRequest("the first of all loggers needs a level")
            reset = change is Change.RESET
            new[key] = logging.NOTSET if reset else LEVELS[_level(key, value or "")]
        return lambda: _apply(new)


def _apply(levels: dict[str, int]) -> None:
    there = loggers()
    for key, level in levels.items():
        there[key].setLevel(level)
        log.warning("logger.changed", extra={"logger": key, "level": level})


def loggers() -> dict[str, logging.Logger]:
    """The first logger of all, and those of our own that were made."""
    ours = {
        name: logger
        for name, logger in list(logging.root.manager.loggerDict.items())
        if isinstance(logger, logging.Logger) and name.partition(".")[0] == OURS
    }
    return {ROOT: logging.getLogger(), **ours}


def spell(level: int) -> str:
    """The word for a level: the most serious one that it lets through."""
    for word, least in LEVELS.items():
        if level <= least:
            return word
    return "FATAL"


def _level(key: str, text: str) -> str:
    if text not in LEVELS:
        raise InvalidSetting(f"{key}: one of {', '.join(sorted(LEVELS))} is needed")
    return text


def _check_name(call: Call, name: str) -> None:
    if not name:
        raise InvalidRequest("the number of a broker is needed")
    check_node(call, name)


class ClientMetrics:
    """What clients are asked to measure (KIP-714): nothing, so nothing can be said about it."""

    def describe(
        self, call: Call, name: str, wanted: Wanted, request: DescribeConfigsRequest
    ) -> Told:
        """Tell that nothing was said."""
        del wanted, request
        check_cluster(call)
        if not name:
            raise InvalidRequest("the name of a subscription is needed")
        return []

    async def alter(self, call: Call, name: str, changes: Changes, *, anew: bool) -> Carry:
        """Refuse it."""
        del name, changes, anew
        check_cluster(call)
        raise InvalidRequest("measures of clients are not collected here")
