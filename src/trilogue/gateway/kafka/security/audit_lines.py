"""The lines of the audit log of Kafka's administrative requests, made of request and response.

A line for each thing that was changed; refusals have theirs from the authorizer. ACLs, SCRAM
credentials and delegation tokens write their own lines, with details that the response lacks.
Values of settings are in no line: they may be secrets.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final

from trilogue.broker.access.authorizer import CLUSTER, Resource, ResourceKind
from trilogue.broker.names import parse_kafka
from trilogue.gateway.kafka.context import (
    DurableResponse,
    HandlerResult,
    PromisedResponse,
    RequestContext,
)
from trilogue.gateway.steps import next_step

LINES_PER_STEP: Final = 100
RESOURCES: Final = {2: ResourceKind.TOPIC, 32: ResourceKind.GROUP}  # of settings; else the cluster

AuditLine = tuple[str, Resource, dict[str, object]]
Describe = Callable[[Any, Any], Iterator[AuditLine]]


def _topic(name: str) -> Resource:
    return Resource(ResourceKind.TOPIC, str(parse_kafka(name)))


def _create_topics(request: Any, response: Any) -> Iterator[AuditLine]:
    if not request.validate_only:
        for each in response.topics:
            if not each.error_code:
                yield "create topic", _topic(each.name), {}


def _delete_topics(_request: Any, response: Any) -> Iterator[AuditLine]:
    for each in response.responses:
        if not each.error_code and each.name is not None:
            yield "delete topic", _topic(each.name), {}


def _delete_records(_request: Any, response: Any) -> Iterator[AuditLine]:
    for topic in response.topics:
        partitions = [each.partition_index for each in topic.partitions if not each.error_code]
        if partitions:
            yield "delete records", _topic(topic.name), {"partitions": len(partitions)}


def _alter_configs(request: Any, response: Any) -> Iterator[AuditLine]:
    if request.validate_only:
        return
    settings = {
        (each.resource_type, each.resource_name): [config.name for config in each.configs]
        for each in request.resources
    }
    for each in response.responses:
        if each.error_code:
            continue
        kind = RESOURCES.get(each.resource_type)
        name = each.resource_name
        resource = CLUSTER if kind is None else Resource(kind, name)
        if kind is ResourceKind.TOPIC:
            resource = _topic(name)
        changed = ", ".join(settings.get((each.resource_type, name), ()))[:1_000]
        yield "alter settings", resource, {"settings": changed}


def _create_partitions(request: Any, response: Any) -> Iterator[AuditLine]:
    if not request.validate_only:
        for each in response.results:
            if not each.error_code:
                yield "create partitions", _topic(each.name), {}


def _delete_groups(_request: Any, response: Any) -> Iterator[AuditLine]:
    for each in response.results:
        if not each.error_code:
            yield "delete group", Resource(ResourceKind.GROUP, each.group_id), {}


def _change_offsets(operation: str, topics: str) -> Describe:
    """Describe a change of a group's positions; the response has the topics in this field."""

    def describe(request: Any, response: Any) -> Iterator[AuditLine]:
        if not response.error_code:
            group = Resource(ResourceKind.GROUP, request.group_id)
            yield operation, group, {"topics": len(getattr(response, topics))}

    return describe


def _alter_quotas(request: Any, response: Any) -> Iterator[AuditLine]:
    if not request.validate_only:
        for each in response.entries:
            if not each.error_code:
                parts = [f"{part.entity_type} {part.entity_name}" for part in each.entity]
                yield "alter quota", CLUSTER, {"entity": ", ".join(parts)[:1_000]}


def _write_markers(request: Any, response: Any) -> Iterator[AuditLine]:
    del request
    for marker in response.markers:
        done = [
            topic.name
            for topic in marker.topics
            if any(not each.error_code for each in topic.partitions)
        ]
        for name in done:
            yield "write transaction marker", _topic(name), {"producer": marker.producer_id}


AUDIT_LINES: Final[dict[int, Describe]] = {
    19: _create_topics,
    20: _delete_topics,
    21: _delete_records,
    27: _write_markers,
    33: _alter_configs,
    37: _create_partitions,
    42: _delete_groups,
    44: _alter_configs,
    47: _change_offsets("delete offsets", "topics"),
    49: _alter_quotas,
    91: _change_offsets("alter share offsets", "responses"),
    92: _change_offsets("delete share offsets", "responses"),
}
"""By API key."""

OWN_LINES: Final = frozenset({30, 31, 38, 39, 40, 51})
"""The requests whose handlers write their lines."""

NO_LINES: Final = frozenset({34, 43, 45, 57, 64})
"""The requests of administrators that are checked and change nothing."""


def record_audit_lines(
    context: RequestContext, key: int, request: Any, answer: HandlerResult
) -> Any:
    """Return what the handler of an administrative request returned, with its lines written."""
    describe = AUDIT_LINES[key]
    if isinstance(answer, DurableResponse):
        _write(context, describe(request, answer.response))
        return answer
    if isinstance(answer, PromisedResponse):
        respond = answer.respond

        def respond_recorded(promise: Any) -> object:
            response = respond(promise)
            _write(context, describe(request, response))
            return response

        return PromisedResponse(answer.promise, respond_recorded)
    return _record(context, describe, request, answer)


async def _record(context: RequestContext, describe: Describe, request: Any, answer: Any) -> object:
    response = await answer if isinstance(answer, Awaitable) else answer
    lines = describe(request, response)
    while _write(context, islice(lines, LINES_PER_STEP)) == LINES_PER_STEP:
        await next_step()
    return response


def _write(context: RequestContext, lines: Iterable[AuditLine]) -> int:
    """Write the lines, and return how many they were."""
    count = 0
    for operation, resource, details in lines:
        context.access.record_act(operation, resource, **details)
        count += 1
    return count
