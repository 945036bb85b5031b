"""DescribeConfigs v0-v4, AlterConfigs v0-v2, IncrementalAlterConfigs v0-v1: what has settings.

Describe: v1 synonyms, where a value comes from · v3 types and documentation · v4 flexible. Alter:
v2 flexible; it replaces all settings. Incremental: v1 flexible; it sets, resets, changes lists.

Topics, brokers, loggers, subscriptions of client metrics and groups: config_kinds.py, loggers.py. A
change becomes true when meta has recorded it; changes of one thing follow each other. What we would
not enforce is refused, as when a topic is made. What other protocols' administration keeps at a
topic (`pulsar.…`) is not shown, cannot be changed here, and stays.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from trilogue.broker.errors import InvalidRequest
from trilogue.broker.promise import Promise
from trilogue.broker.settings import Change
from trilogue.gateway.kafka.config_kinds import (
    BROKER_KIND,
    GROUP,
    LOGGER,
    METRICS,
    TOPIC,
    Brokers,
    Changes,
    Groups,
    Things,
    Told,
    Topics,
)
from trilogue.gateway.kafka.errors import EXPECTED, code_of
from trilogue.gateway.kafka.loggers import ClientMetrics, Loggers
from trilogue.gateway.kafka.shared import Call
from trilogue.gateway.kafka.topics import all_kept
from trilogue.wire.kafka import configs as wire
from trilogue.wire.kafka import incremental_configs as incremental

YIELD_EVERY = 20  # things in one go, before others may use the loop
ROWS = 20  # settings that take as long to tell as a thing to find
ANSWER_BYTES_MAX = 256 << 20  # of settings that one request is told: it is written in one piece

CHANGES = {0: Change.SET, 1: Change.RESET, 2: Change.APPEND, 3: Change.SUBTRACT}

Asked = TypeVar("Asked", wire.AlterConfigsResource, incremental.AlterConfigsResource)


def _kinds() -> dict[int, Things]:
    return {
        TOPIC: Topics(),
        BROKER_KIND: Brokers(),
        LOGGER: Loggers(),
        METRICS: ClientMetrics(),
        GROUP: Groups(),
    }


def _kind(kinds: dict[int, Things], number: int) -> Things:
    found = kinds.get(number)
    if found is None:
        raise InvalidRequest(f"nothing of kind {number} has settings")
    return found


async def describe(
    call: Call, request: wire.DescribeConfigsRequest
) -> wire.DescribeConfigsResponse:
    """Tell the settings that were made, and what holds for the others; of each thing once."""
    response = wire.DescribeConfigsResponse()
    kinds = _kinds()
    seen: set[tuple[int, str, tuple[str, ...]]] = set()
    told, weight, weighed = 0, 0, _Weighed()
    for asked in request.resources:
        told += 1
        if told >= YIELD_EVERY * ROWS:
            told = 0
            await asyncio.sleep(0)
        if (question := _question(asked)) in seen:
            continue
        seen.add(question)
        result = wire.DescribeConfigsResult(
            resource_type=asked.resource_type, resource_name=asked.resource_name
        )
        response.results.append(result)
        try:
            _check_count(len(seen), call.door.settings.described_per_request_max)
            things = _kind(kinds, asked.resource_type)
            found = things.describe(call, asked.resource_name, asked.configuration_keys, request)
            told += ROWS + (0 if weighed.knows(found) else len(found))
            weight += weighed.weight(found)
            if weight > ANSWER_BYTES_MAX:
                raise InvalidRequest("the answer would be too large: ask for fewer at once")
            result.configs = found
            result.error_message = ""
        except EXPECTED as problem:
            result.error_code = code_of(problem)
            result.error_message = str(problem) or None
    return response


class _Weighed:
    """The last list of settings and about how many bytes it takes: most topics say the same."""

    def __init__(self) -> None:
        self._found: Told = []
        self._weight = 0

    def knows(self, found: Told) -> bool:
        """Whether it is this list."""
        return found is self._found

    def weight(self, found: Told) -> int:
        """Bytes, a little more than it takes."""
        if not self.knows(found):
            self._found, self._weight = found, sum(map(_weight, found))
        return self._weight


def _weight(row: wire.DescribeConfigsResourceResult) -> int:
    synonyms = sum(10 + len(each.name) + len(each.value or "") for each in row.synonyms)
    return 20 + len(row.name) + len(row.value or "") + len(row.documentation or "") + synonyms


def _question(asked: wire.DescribeConfigsResource) -> tuple[int, str, tuple[str, ...]]:
    return asked.resource_type, asked.resource_name, tuple(asked.configuration_keys or ())


async def alter(call: Call, request: wire.AlterConfigsRequest) -> wire.AlterConfigsResponse:
    """Let things have the settings that the request names, and no others."""

    def changes(asked: wire.AlterConfigsResource) -> Changes:
        return [(each.name, Change.SET, each.value) for each in asked.configs]

    asked, only_checked = request.resources, request.validate_only
    found = await _alter(call, asked, changes, anew=True, validate_only=only_checked)
    return wire.AlterConfigsResponse(responses=found)


async def alter_incrementally(
    call: Call, request: incremental.IncrementalAlterConfigsRequest
) -> incremental.IncrementalAlterConfigsResponse:
    """Change the settings that the request names, and leave the others."""
    asked, only_checked = request.resources, request.validate_only
    found = await _alter(call, asked, _changes, anew=False, validate_only=only_checked)
    return incremental.IncrementalAlterConfigsResponse(responses=found)


def _changes(asked: incremental.AlterConfigsResource) -> Changes:
    found: Changes = []
    for each in asked.configs:
        change = CHANGES.get(each.config_operation)
        if change is None:
            raise InvalidRequest(f"{each.config_operation} is no way to change a setting")
        found.append((each.name, change, each.value))
    return found


async def _alter(
    call: Call,
    resources: Sequence[Asked],
    changes_of: Callable[[Asked], Changes],
    *,
    anew: bool,
    validate_only: bool,
) -> list[wire.AlterConfigsResourceResponse]:
    mentioned = Counter((each.resource_type, each.resource_name) for each in resources)
    kinds = _kinds()
    results: list[wire.AlterConfigsResourceResponse] = []
    waiting: list[tuple[wire.AlterConfigsResourceResponse, Promise[Any]]] = []
    for asked in resources:
        if len(results) % YIELD_EVERY == YIELD_EVERY - 1:
            await asyncio.sleep(0)
        key = asked.resource_type, asked.resource_name
        result = wire.AlterConfigsResourceResponse(
            error_message=None, resource_type=key[0], resource_name=key[1]
        )
        results.append(result)
        try:
            _check_count(len(results), call.door.settings.topics_per_request_max)
            if mentioned[key] > 1:
                raise InvalidRequest("the request names this thing more than once")
            things = _kind(kinds, key[0])
            carry = await things.alter(call, key[1], changes_of(asked), anew=anew)
            promise = None if validate_only else carry()
            if promise is not None:
                waiting.append((result, promise))
        except EXPECTED as problem:
            _refuse(result, problem)
    promises = [promise for _, promise in waiting]
    outcomes = await all_kept(call, promises, call.door.settings.topics_timeout_max_ms)
    for (result, _), outcome in zip(waiting, outcomes, strict=True):
        if outcome is not None:
            _refuse(result, outcome)
    return results


def _refuse(result: wire.AlterConfigsResourceResponse, problem: BaseException) -> None:
    result.error_code = code_of(problem)
    result.error_message = str(problem) or None


def _check_count(count: int, most: int) -> None:
    if count > most:
        raise InvalidRequest(f"a request may name {most} things")
