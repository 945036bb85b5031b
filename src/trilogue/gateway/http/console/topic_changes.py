"""Forms that change topics: created, deleted, given partitions and settings.

Each needs the operation that a Kafka client needs for the same change, and is a line of the audit
log.
"""

from __future__ import annotations

from functools import partial

from trilogue.broker.access.authorizer import CLUSTER, Operation, Resource, ResourceKind
from trilogue.broker.errors import InvalidName
from trilogue.broker.names import TopicName, parse_pulsar
from trilogue.broker.settings.topic_settings import Change, change_settings
from trilogue.broker.topics.topic import Topic
from trilogue.gateway.http.console.rendering import Redirect
from trilogue.gateway.http.console.request import ConsoleRequest, make_link, parse_number
from trilogue.gateway.http.request_limits import HttpError


async def create_topic(request: ConsoleRequest) -> Redirect:
    """Create a topic with numbered partitions, and show it."""
    fields = request.fields
    spelled = fields.get("name", "").strip()
    found = parse_pulsar(
        spelled if "://" in spelled or "/" not in spelled else f"persistent://{spelled}"
    )
    name = found.topic
    if not request.can(Operation.CREATE, *CLUSTER):
        request.check(Operation.CREATE, ResourceKind.TOPIC, name)
    if not found.persistent:
        raise InvalidName("a non-persistent topic exists while clients use it")
    if found.partition is not None:
        raise InvalidName('"-partition-" and a number mean a part of another topic')
    if not request.broker.namespaces.exists(name.namespace_name):
        raise HttpError(404, f"there is no namespace {name.namespace_name}")
    count = parse_number("partitions", fields.get("partitions", "").strip(), 1)
    settings = parse_settings(fields.get("settings", ""))
    new = request.broker.cluster.check_create(name, partition_count=count, settings=dict(settings))
    await request.gateway.write_metadata(request.broker.cluster.plan_create(new))
    _record(request, "create topic", name)
    return Redirect(make_link("/topic", name=name))


async def delete_topic(request: ConsoleRequest) -> Redirect:
    """Delete a topic whose name was typed once more."""
    topic = request.find_topic(request.fields.get("name", ""), Operation.DELETE)
    if request.fields.get("confirm", "").strip() != str(topic.name):
        raise HttpError(400, f"to delete the topic, type its name: {topic.name}")
    await request.delete_topic(topic.name)
    _record(request, "delete topic", topic.name)
    return Redirect(make_link("/topics"))


async def grow_topic(request: ConsoleRequest) -> Redirect:
    """Add partitions to a topic."""
    find_topic = partial(request.find_topic, request.fields.get("name", ""), Operation.ALTER)
    name = find_topic().name
    count = parse_number("partitions", request.fields.get("partitions", "").strip(), 0)
    request.broker.cluster.check_add_partitions(name, count)
    await request.grow_topic(find_topic, count)
    _record(request, "add partitions", name)
    return Redirect(make_link("/topic", name=name))


async def alter_topic(request: ConsoleRequest) -> Redirect:
    """Give a topic a setting, or remove one."""
    fields = request.fields
    key, value = fields.get("key", "").strip(), fields.get("value", "").strip()
    change = Change.RESET if fields.get("reset") else Change.SET

    def find_topic() -> Topic:
        return request.find_topic(fields.get("name", ""), Operation.ALTER_SETTINGS)

    def change_overrides(overrides: dict[str, str]) -> None:
        after = change_settings(overrides, [(key, change, value)])
        overrides.clear()
        overrides.update(after)

    name = (await request.alter_topic(find_topic, change_overrides)).name
    _record(request, "alter topic", name)
    return Redirect(make_link("/topic", name=name) + "#settings")


def parse_settings(text: str) -> list[tuple[str, str]]:
    """Return the settings of lines `key=value`; raises HttpError 400."""
    found = []
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if not line.strip():
            continue
        if not equals:
            raise HttpError(400, "a setting is a line `key=value`")
        found.append((key.strip(), value.strip()))
    return found


def _record(request: ConsoleRequest, act: str, name: TopicName) -> None:
    request.access.record_act(act, Resource(ResourceKind.TOPIC, str(name)))
