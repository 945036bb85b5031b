"""DescribeConfigs v0-v4, AlterConfigs v0-v2, IncrementalAlterConfigs v0-v1.

Describe: v1 synonyms and sources · v3 types and documentation · v4 flexible. Alter: v2 flexible;
replaces all overrides. Incremental: v1 flexible; sets, deletes, appends to and subtracts from
lists.

The resource types are in config_resources.py and loggers.py. A change holds once `meta` has
recorded it; changes of one resource follow each other. A setting that the broker would not enforce
is refused, as in CreateTopics. Settings of other protocols' administration at a topic (`pulsar.…`)
are not shown, cannot be changed here, and are kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from trilogue.broker.errors import InvalidRequest
from trilogue.broker.promise import Promise
from trilogue.broker.settings.topic_settings import Change
from trilogue.gateway.kafka.configs.config_resources import (
    BROKER_KIND,
    GROUP,
    LOGGER,
    METRICS,
    TOPIC,
    BrokerConfigs,
    Changes,
    ConfigEntries,
    ConfigResources,
    GroupConfigs,
    TopicConfigs,
)
from trilogue.gateway.kafka.configs.loggers import ClientMetricsConfigs, LoggerConfigs
from trilogue.gateway.kafka.context import RequestContext
from trilogue.gateway.kafka.errors import EXPECTED, set_error, to_error_code
from trilogue.gateway.kafka.metadata_changes import wait_for_all
from trilogue.gateway.steps import next_step
from trilogue.wire.kafka.configs import configs as wire

YIELD_EVERY = 20  # resources per loop iteration
WORK_PER_RESOURCE = 20  # entries that take as long as looking up a resource
ANSWER_BYTES_MAX = 256 << 20  # of settings in one response, which is encoded in one piece

CHANGES = {0: Change.SET, 1: Change.RESET, 2: Change.APPEND, 3: Change.SUBTRACT}

Resource = TypeVar("Resource", wire.AlterConfigsResource, wire.IncrementalAlterConfigsResource)


def _config_resources() -> dict[int, ConfigResources]:
    return {
        TOPIC: TopicConfigs(),
        BROKER_KIND: BrokerConfigs(),
        LOGGER: LoggerConfigs(),
        METRICS: ClientMetricsConfigs(),
        GROUP: GroupConfigs(),
    }


def _find_resources(kinds: dict[int, ConfigResources], number: int) -> ConfigResources:
    found = kinds.get(number)
    if found is None:
        raise InvalidRequest(f"nothing of kind {number} has settings")
    return found


async def handle_describe_configs(
    context: RequestContext, request: wire.DescribeConfigsRequest
) -> wire.DescribeConfigsResponse:
    """Describe each requested resource once."""
    response = wire.DescribeConfigsResponse()
    kinds = _config_resources()
    seen: set[tuple[int, str, tuple[str, ...]]] = set()
    work, size, sizes = 0, 0, _EntrySizes()
    for requested in request.resources:
        work += 1
        if work >= YIELD_EVERY * WORK_PER_RESOURCE:
            work = 0
            await next_step()
        if (query := _query_key(requested)) in seen:
            continue
        seen.add(query)
        result = wire.DescribeConfigsResult(
            resource_type=requested.resource_type, resource_name=requested.resource_name
        )
        response.results.append(result)
        try:
            _check_count(len(seen), context.gateway.settings.described_per_request_max)
            resources = _find_resources(kinds, requested.resource_type)
            found = resources.describe(
                context, requested.resource_name, requested.configuration_keys, request
            )
            work += WORK_PER_RESOURCE + (0 if sizes.is_last(found) else len(found))
            size += sizes.size_bytes(found)
            if size > ANSWER_BYTES_MAX:
                raise InvalidRequest("the response would be too large: request fewer resources")
            result.configs = found
            result.error_message = ""
        except EXPECTED as problem:
            result.error_code = to_error_code(problem)
            result.error_message = str(problem) or None
    return response


class _EntrySizes:
    """The last list of entries and its approximate size: most topics share one list."""

    def __init__(self) -> None:
        self._found: ConfigEntries = []
        self._size_bytes = 0

    def is_last(self, found: ConfigEntries) -> bool:
        """Whether this is the list measured last."""
        return found is self._found

    def size_bytes(self, found: ConfigEntries) -> int:
        """Return about how many bytes the entries take, a little too many."""
        if not self.is_last(found):
            self._found, self._size_bytes = found, sum(map(_size_bytes, found))
        return self._size_bytes


def _size_bytes(row: wire.DescribeConfigsResourceResult) -> int:
    synonyms = sum(10 + len(each.name) + len(each.value or "") for each in row.synonyms)
    return 20 + len(row.name) + len(row.value or "") + len(row.documentation or "") + synonyms


def _query_key(requested: wire.DescribeConfigsResource) -> tuple[int, str, tuple[str, ...]]:
    return (
        requested.resource_type,
        requested.resource_name,
        tuple(requested.configuration_keys or ()),
    )


async def handle_alter_configs(
    context: RequestContext, request: wire.AlterConfigsRequest
) -> wire.AlterConfigsResponse:
    """Replace the overrides of each resource by those in the request."""

    def changes(requested: wire.AlterConfigsResource) -> Changes:
        return [(each.name, Change.SET, each.value) for each in requested.configs]

    requested, validate_only = request.resources, request.validate_only
    found = await _alter(context, requested, changes, replace=True, validate_only=validate_only)
    return wire.AlterConfigsResponse(responses=found)


async def handle_incremental_alter_configs(
    context: RequestContext, request: wire.IncrementalAlterConfigsRequest
) -> wire.IncrementalAlterConfigsResponse:
    """Change the settings in the request and leave the others."""
    requested, validate_only = request.resources, request.validate_only
    found = await _alter(context, requested, _changes, replace=False, validate_only=validate_only)
    return wire.IncrementalAlterConfigsResponse(responses=found)


def _changes(requested: wire.IncrementalAlterConfigsResource) -> Changes:
    found: Changes = []
    for each in requested.configs:
        change = CHANGES.get(each.config_operation)
        if change is None:
            raise InvalidRequest(f"{each.config_operation} is no way to change a setting")
        found.append((each.name, change, each.value))
    return found


async def _alter(
    context: RequestContext,
    resources: Sequence[Resource],
    changes_of: Callable[[Resource], Changes],
    *,
    replace: bool,
    validate_only: bool,
) -> list[wire.AlterConfigsResourceResponse]:
    mentioned = Counter((each.resource_type, each.resource_name) for each in resources)
    kinds = _config_resources()
    results: list[wire.AlterConfigsResourceResponse] = []
    waiting: list[tuple[wire.AlterConfigsResourceResponse, Promise[Any]]] = []
    for requested in resources:
        if len(results) % YIELD_EVERY == YIELD_EVERY - 1:
            await next_step()
        key = requested.resource_type, requested.resource_name
        result = wire.AlterConfigsResourceResponse(
            error_message=None, resource_type=key[0], resource_name=key[1]
        )
        results.append(result)
        try:
            _check_count(len(results), context.gateway.settings.topics_per_request_max)
            if mentioned[key] > 1:
                raise InvalidRequest("the request names this thing more than once")
            found = _find_resources(kinds, key[0])
            carry = await found.alter(context, key[1], changes_of(requested), replace=replace)
            promise = None if validate_only else carry()
            if promise is not None:
                waiting.append((result, promise))
        except EXPECTED as problem:
            set_error(result, problem)
    promises = [promise for _, promise in waiting]
    outcomes = await wait_for_all(context, promises, context.gateway.settings.topics_timeout_max_ms)
    for (result, _), outcome in zip(waiting, outcomes, strict=True):
        if outcome is not None:
            set_error(result, outcome)
    return results


def _check_count(count: int, most: int) -> None:
    if count > most:
        raise InvalidRequest(f"a request may name {most} things")
