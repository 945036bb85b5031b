"""DescribeConfigs v0-v4, AlterConfigs v0-v2, IncrementalAlterConfigs v0-v1: settings of topics.

Describe: v1 synonyms, where a value comes from · v3 types and documentation · v4 flexible. Alter:
v2 flexible; it replaces all settings. Incremental: v1 flexible; it sets, resets, changes lists.

Only topics have settings here: for brokers, loggers and groups the answer is 42. A change becomes
true when meta has recorded it; changes of one topic follow each other. What we would not enforce is
refused (40), as when a topic is made. What other protocols' administration keeps at a topic
(`pulsar.…`) is not shown, cannot be changed here, and stays.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

from trilogue.broker.access import Resource
from trilogue.broker.errors import (
    AccessDenied,
    InvalidName,
    InvalidRequest,
    UnknownTopic,
)
from trilogue.broker.names import parse_kafka
from trilogue.broker.promise import Promise
from trilogue.broker.setting import Kind, Setting
from trilogue.broker.settings import Change, change_settings, default_of
from trilogue.broker.settings_table import TABLE
from trilogue.broker.topic import Topic
from trilogue.gateway.kafka.errors import EXPECTED, code_of
from trilogue.gateway.kafka.shared import Call
from trilogue.gateway.kafka.topics import SOURCE_DEFAULT, SOURCE_TOPIC, all_kept, carry_out, kept
from trilogue.wire.kafka import configs as wire
from trilogue.wire.kafka import incremental_configs as incremental

TOPIC = 2  # the kind of resource
YIELD_EVERY = 50  # topics in one go, before others may use the loop

CHANGES = {0: Change.SET, 1: Change.RESET, 2: Change.APPEND, 3: Change.SUBTRACT}
TYPES = {
    Kind.BOOLEAN: 1, Kind.STRING: 2, Kind.INT: 3, Kind.LONG: 5, Kind.DOUBLE: 6, Kind.LIST: 7
}  # fmt: skip

Changes = list[tuple[str, Change, str | None]]
Asked = TypeVar("Asked", wire.AlterConfigsResource, incremental.AlterConfigsResource)


# ---- describe


async def describe(
    call: Call, request: wire.DescribeConfigsRequest
) -> wire.DescribeConfigsResponse:
    """Tell the settings of topics: those that were made, and what holds for the others."""
    response = wire.DescribeConfigsResponse()
    for number, asked in enumerate(request.resources):
        if number % YIELD_EVERY == YIELD_EVERY - 1:
            await asyncio.sleep(0)
        result = wire.DescribeConfigsResult(
            resource_type=asked.resource_type, resource_name=asked.resource_name
        )
        response.results.append(result)
        try:
            _check_count(call, number)
            topic = _find(call, asked.resource_type, asked.resource_name)
        except EXPECTED as problem:
            result.error_code = code_of(problem)
            result.error_message = str(problem) or None
            continue
        result.error_message = ""
        wanted = asked.configuration_keys
        for row in TABLE.values():
            if not wanted or row.key in wanted:
                result.configs.append(_setting(call, topic, row, request))
    return response


def _setting(
    call: Call, topic: Topic, row: Setting, request: wire.DescribeConfigsRequest
) -> wire.DescribeConfigsResourceResult:
    own = topic.settings.get(row.key)
    default = default_of(row, call.broker.cluster.limits.topic)
    source = SOURCE_DEFAULT if own is None else SOURCE_TOPIC
    synonyms = []
    if request.include_synonyms:
        values = [(default, SOURCE_DEFAULT)]
        if own is not None:
            values.insert(0, (own, SOURCE_TOPIC))
        synonyms = [
            wire.DescribeConfigsSynonym(name=row.key, value=value, source=of)
            for value, of in values
        ]
    return wire.DescribeConfigsResourceResult(
        name=row.key,
        value=default if own is None else own,
        read_only=row.fixed,
        is_default=own is None,
        config_source=source,
        synonyms=synonyms,
        config_type=TYPES[row.kind],
        documentation=row.doc if request.include_documentation else None,
    )


# ---- alter


async def alter(call: Call, request: wire.AlterConfigsRequest) -> wire.AlterConfigsResponse:
    """Let topics have the settings that the request names, and no others."""

    def settings(asked: wire.AlterConfigsResource, topic: Topic) -> dict[str, str]:
        others = {key: value for key, value in topic.settings.items() if key not in TABLE}
        changes = [(each.name, Change.SET, each.value) for each in asked.configs]
        return change_settings(others, changes)

    found = await _alter(call, request.resources, settings, validate_only=request.validate_only)
    return wire.AlterConfigsResponse(responses=found)


async def alter_incrementally(
    call: Call, request: incremental.IncrementalAlterConfigsRequest
) -> incremental.IncrementalAlterConfigsResponse:
    """Change the settings that the request names, and leave the others."""

    def settings(asked: incremental.AlterConfigsResource, topic: Topic) -> dict[str, str]:
        return change_settings(topic.settings, _changes(asked))

    found = await _alter(call, request.resources, settings, validate_only=request.validate_only)
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
    settings_of: Callable[[Asked, Topic], dict[str, str]],
    *,
    validate_only: bool,
) -> list[wire.AlterConfigsResourceResponse]:
    mentioned = Counter((each.resource_type, each.resource_name) for each in resources)
    results: dict[tuple[int, str], wire.AlterConfigsResourceResponse] = {}
    waiting: list[tuple[wire.AlterConfigsResourceResponse, Promise[Topic]]] = []
    for asked in resources:
        key = asked.resource_type, asked.resource_name
        if key in results:
            continue
        if len(results) % YIELD_EVERY == YIELD_EVERY - 1:
            await asyncio.sleep(0)
        result = results[key] = wire.AlterConfigsResourceResponse(
            error_message=None, resource_type=key[0], resource_name=key[1]
        )
        try:
            _check_count(call, len(results) - 1)
            if mentioned[key] > 1:
                raise InvalidRequest("the request names this topic more than once")
            topic = await _at_rest(call, *key)
            settings = settings_of(asked, topic)
            if not validate_only:
                commit = call.broker.cluster.plan_alter(topic.name, settings)
                waiting.append((result, carry_out(call, commit)))
        except EXPECTED as problem:
            _refuse(result, problem)
    promises = [promise for _, promise in waiting]
    outcomes = await all_kept(call, promises, call.door.settings.topics_timeout_max_ms)
    for (result, _), outcome in zip(waiting, outcomes, strict=True):
        if outcome is not None:
            _refuse(result, outcome)
    return list(results.values())


async def _at_rest(call: Call, kind: int, name: str) -> Topic:
    """The topic, when no other change of it is under way."""
    topic = _find(call, kind, name)
    while (pending := call.broker.cluster.altering(topic.name)) is not None:
        await kept(call, pending)
        topic = _find(call, kind, name)
    return topic


def _refuse(result: wire.AlterConfigsResourceResponse, problem: BaseException) -> None:
    result.error_code = code_of(problem)
    result.error_message = str(problem) or None


# ---- both


def _check_count(call: Call, before: int) -> None:
    most = call.door.settings.topics_per_request_max
    if before >= most:
        raise InvalidRequest(f"a request may name {most} topics")


def _find(call: Call, kind: int, spelled: str) -> Topic:
    if kind != TOPIC:
        raise InvalidRequest("only topics have settings here")
    try:
        name = parse_kafka(spelled)
    except InvalidName as error:
        raise UnknownTopic("no topic can have this name") from error
    if not call.allowed(name):
        raise AccessDenied(call.operation, Resource(call.kind, str(name)))
    return call.broker.cluster.topic(name)
