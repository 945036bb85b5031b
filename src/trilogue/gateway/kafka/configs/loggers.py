"""Levels of the broker's loggers, as config resources.

    root                      everything
    trilogue.gateway.stream   one module

Kafka's level names map to Python's levels. A change takes effect at once, is not recorded, and ends
with the process, as in Kafka. A logger that no module has created is unknown.
"""

from __future__ import annotations

import logging

from trilogue.broker.errors import InvalidRequest, InvalidSetting
from trilogue.broker.settings.setting import Setting
from trilogue.broker.settings.topic_settings import Change
from trilogue.broker.settings.values import Kind
from trilogue.gateway.kafka.configs.config_entries import Source, describe_entry
from trilogue.gateway.kafka.configs.config_resources import (
    Changes,
    ConfigEntries,
    ConfigKeys,
    StartChange,
    check_cluster,
    check_node,
)
from trilogue.gateway.kafka.context import RequestContext
from trilogue.wire.kafka.configs.configs import DescribeConfigsRequest

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


class LoggerConfigs:
    """The loggers of this broker."""

    def describe(
        self, context: RequestContext, name: str, keys: ConfigKeys, request: DescribeConfigsRequest
    ) -> ConfigEntries:
        """Return the level of each logger."""
        check_cluster(context)
        _check_name(context, name)
        entries = []
        for key, logger in sorted(list_loggers().items()):
            if not keys or key in keys:
                row = Setting(key, Kind.STRING, "", "")
                each = describe_entry(
                    row, level_name(logger.getEffectiveLevel()), Source.LOGGER, (), request
                )
                each.config_type = NO_TYPE
                each.documentation = None
                entries.append(each)
        return entries

    async def alter(
        self, context: RequestContext, name: str, changes: Changes, *, replace: bool
    ) -> StartChange:
        """Check a change of levels; nothing is recorded."""
        if replace:
            raise InvalidRequest("levels of loggers are changed one by one")
        check_cluster(context)
        _check_name(context, name)
        there, new = list_loggers(), {}
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
    there = list_loggers()
    for key, level in levels.items():
        there[key].setLevel(level)
        log.warning("logger.changed", extra={"logger": key, "level": level})


def list_loggers() -> dict[str, logging.Logger]:
    """Return the root logger and those of this program that exist."""
    ours = {
        name: logger
        for name, logger in list(logging.root.manager.loggerDict.items())
        if isinstance(logger, logging.Logger) and name.partition(".")[0] == OURS
    }
    return {ROOT: logging.getLogger(), **ours}


def level_name(level: int) -> str:
    """Return Kafka's name for a level: the most severe one that it lets through."""
    for word, least in LEVELS.items():
        if level <= least:
            return word
    return "FATAL"


def _level(key: str, text: str) -> str:
    if text not in LEVELS:
        raise InvalidSetting(f"{key}: one of {', '.join(sorted(LEVELS))} is needed")
    return text


def _check_name(context: RequestContext, name: str) -> None:
    if not name:
        raise InvalidRequest("the number of a broker is needed")
    check_node(context, name)


class ClientMetricsConfigs:
    """Subscriptions of client metrics (KIP-714): there are none, and none can be made."""

    def describe(
        self, context: RequestContext, name: str, keys: ConfigKeys, request: DescribeConfigsRequest
    ) -> ConfigEntries:
        """Return no settings."""
        del keys, request
        check_cluster(context)
        if not name:
            raise InvalidRequest("the name of a subscription is needed")
        return []

    async def alter(
        self, context: RequestContext, name: str, changes: Changes, *, replace: bool
    ) -> StartChange:
        """Refuse the change."""
        del name, changes, replace
        check_cluster(context)
        raise InvalidRequest("measures of clients are not collected here")
