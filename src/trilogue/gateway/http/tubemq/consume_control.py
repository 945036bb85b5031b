"""Consume control: TubeMQ's black lists, named groups and required filters.

All of it is one record per group and topic (broker/tubemq/group_rules.py). Older methods change one
field of it each, newer ones (`..._group_csmctrl_info`) all of it.

A real master applies the black list and filters only to topics with authorization enabled. Here
they are always effective.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from msgspec.structs import replace

from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.metadata_change import MetadataChange
from trilogue.broker.names import TopicName, format_tubemq
from trilogue.broker.topics.topic import Topic
from trilogue.broker.tubemq.group_rules import (
    MIB,
    NO_TOPIC_RECORD,
    SIZE_KEY,
    ConsumeRecord,
    TopicRecord,
    check_message_mib,
)
from trilogue.gateway.http.tubemq.topic_views import (
    CONDITION_ON,
    describe_consume_of,
    describe_filters,
)
from trilogue.gateway.http.tubemq.web_api_request import (
    EXISTS,
    NOT_FOUND,
    NOT_NOW,
    UNCHANGED,
    Answer,
    ItemError,
    WebApiError,
    WebApiMethod,
    WebApiRequest,
    describe_stamp,
    for_records,
    for_request,
    master_response,
    run_item,
)

BLACK = "on the black list"
Change = Callable[[ConsumeRecord | None], ConsumeRecord | None]
NOTHING = ConsumeRecord(named=False)


# -- changes


async def _change_records(
    request: WebApiRequest, change: Change, *, with_topic: bool = False
) -> list[Answer]:
    """Apply a change to the record of each named group and topic."""
    found = []
    for group in request.needed_groups:
        for topic in request.needed_topics:
            named = {"groupName": group}
            if with_topic:
                named["topicName"] = format_tubemq(topic)
            found.append(await run_item(_change_record(request, group, topic, change), **named))
    return found


async def _change_record(
    request: WebApiRequest, group: str, topic: TopicName, change: Change
) -> None:
    request.check_access(ResourceKind.GROUP, group)
    request.check_access(ResourceKind.TOPIC, topic)
    rules = request.rules

    def decide() -> MetadataChange[None]:
        before = rules.consume(group, str(topic))
        after = change(before)
        if after is not None:
            if after == before:
                raise ItemError(UNCHANGED, "Consume control configure not changed!")
            after = replace(after, stamp=request.stamp(before.stamp if before else None))
        return rules.plan_consume(group, topic, after)

    await request.commit_change(decide)


def _without_defaults(record: ConsumeRecord) -> ConsumeRecord | None:
    """Return None for a record that has no effect."""
    return None if record.may and not record.named and not record.filtered else record


async def add_records(request: WebApiRequest) -> list[Answer]:
    """Add records for groups and topics that have none."""

    def change(before: ConsumeRecord | None) -> ConsumeRecord:
        if before is not None:
            raise ItemError(EXISTS, "Existed record found for this group and topic!")
        return _apply_parameters(request, ConsumeRecord())

    return await _change_records(request, change, with_topic=True)


async def update_records(request: WebApiRequest) -> list[Answer]:
    """Change existing records."""

    def change(before: ConsumeRecord | None) -> ConsumeRecord:
        return _apply_parameters(request, _existing(before))

    return await _change_records(request, change, with_topic=True)


async def delete_records(request: WebApiRequest) -> list[Answer]:
    """Delete records."""
    if request.has("topicName"):
        return await _change_records(request, lambda _: None, with_topic=True)
    wanted, found = set(request.needed_groups), []
    for group, topic, _ in list(request.rules.every_consume()):
        if group in wanted:
            of_one = request.of({"groupName": group, "topicName": topic})
            found += await _change_records(of_one, lambda _: None, with_topic=True)
    return found


def _existing(before: ConsumeRecord | None) -> ConsumeRecord:
    if before is None:
        raise ItemError(NOT_FOUND, "Not found consume control configure for this group and topic!")
    return before


def _apply_parameters(request: WebApiRequest, before: ConsumeRecord) -> ConsumeRecord:
    may = request.flag("consumeEnable", default=before.may)
    return replace(
        before,
        named=before.named or request.has("consumeEnable"),
        may=may,
        reason=request.text("disableCsmRsn", before.reason),
        filtered=request.flag("filterEnable", default=before.filtered),
        filters=_filters(request, before),
    )


def _filters(request: WebApiRequest, before: ConsumeRecord) -> tuple[str, ...]:
    return tuple(request.names("filterConds")) if request.has("filterConds") else before.filters


async def add_to_black_list(request: WebApiRequest) -> list[Answer]:
    """Put groups on the black list of topics."""
    _check_topics_exist(request)
    reason = request.text("reason", BLACK)
    return await _change_records(
        request, lambda before: replace(before or NOTHING, may=False, reason=reason)
    )


async def remove_from_black_list(request: WebApiRequest) -> list[Answer]:
    """Remove groups from the black list."""

    def change(before: ConsumeRecord | None) -> ConsumeRecord | None:
        if before is None or before.may:
            return before if before is None else _without_defaults(before)
        return _without_defaults(replace(before, may=True, reason=""))

    return await _change_leniently(request, change)


async def name_groups(request: WebApiRequest) -> list[Answer]:
    """Name groups: those that may read topics with named groups only."""
    _check_topics_exist(request)
    return await _change_leniently(request, lambda before: replace(before or NOTHING, named=True))


async def unname_groups(request: WebApiRequest) -> list[Answer]:
    """Remove groups from the named ones."""
    return await _change_leniently(
        request, lambda before: before and _without_defaults(replace(before, named=False))
    )


async def _change_leniently(request: WebApiRequest, change: Change) -> list[Answer]:
    """Apply a change as older methods do: no change is a success."""
    found = await _change_records(request, change)
    for answer in found:
        if answer["errCode"] == UNCHANGED:
            answer.update(success=True, errCode=200, errInfo="Ok")
    return found


async def add_filters(request: WebApiRequest) -> list[Answer]:
    """Set the filters that groups have to read topics with."""
    _check_topics_exist(request)
    return await _change_records(
        request, lambda before: _conditions(request, before or ConsumeRecord())
    )


async def update_filters(request: WebApiRequest) -> list[Answer]:
    """Change the filters of existing records."""
    return await _change_records(request, lambda before: _conditions(request, _existing(before)))


async def delete_filters(request: WebApiRequest) -> list[Answer]:
    """Let groups read topics with any filters."""
    return await _change_leniently(
        request,
        lambda before: before and _without_defaults(replace(before, filtered=False, filters=())),
    )


def _conditions(request: WebApiRequest, before: ConsumeRecord) -> ConsumeRecord:
    filtered = before.filtered
    if request.has("condStatus"):
        filtered = request.number("condStatus", high=CONDITION_ON) == CONDITION_ON
    return replace(before, filtered=filtered, filters=_filters(request, before))


def _check_topics_exist(request: WebApiRequest) -> None:
    for topic in request.needed_topics:
        if request.broker.cluster.find_topic(topic) is None:
            raise WebApiError(
                f"topicName value {format_tubemq(topic)} is not configure, please configure first!"
            )


# -- queries


def _find_records(request: WebApiRequest) -> list[tuple[str, str, ConsumeRecord]]:
    """Return group, topic and record of those that the request names."""
    groups, topics = set(request.groups), {str(each): each for each in request.topics}
    found = []
    for group, topic, record in request.rules.every_consume():
        if (groups and group not in groups) or (topics and topic not in topics):
            continue
        if request.can_see(ResourceKind.GROUP, group) and request.shows_topic(topic):
            tenant, _, rest = topic.partition("/")
            namespace, _, name = rest.rpartition("/")
            found.append((group, format_tubemq(TopicName(tenant, namespace, name)), record))
    return found


def query_records(request: WebApiRequest) -> Answer:
    """Return all fields of records."""
    return master_response(
        [
            describe_consume_of(topic, group, record)
            for group, topic, record in _find_records(request)
        ]
    )


def query_groups(request: WebApiRequest) -> Answer:
    """Return the groups that have records."""
    return master_response(list(dict.fromkeys(group for group, _, _ in _find_records(request))))


def query_black_list(request: WebApiRequest) -> Answer:
    """Return the black list."""
    return master_response(
        [
            {
                "groupName": group,
                "topicName": topic,
                "reason": record.reason,
                **describe_stamp(record.stamp, serial=False),
            }
            for group, topic, record in _find_records(request)
            if not record.may
        ]
    )


def query_named_groups(request: WebApiRequest) -> Answer:
    """Return the named groups."""
    return master_response(
        [
            {"topicName": topic, "groupName": group, **describe_stamp(record.stamp, serial=False)}
            for group, topic, record in _find_records(request)
            if record.named and record.may
        ]
    )


def query_filters(request: WebApiRequest) -> Answer:
    """Return the required filters."""
    status = request.number("condStatus", -1, low=-1, high=CONDITION_ON)
    found = []
    for group, topic, record in _find_records(request):
        fields = describe_filters(record)
        if status in {-1, fields["condStatus"]}:
            named = {"topicName": topic, "groupName": group}
            found.append({**named, **fields, **describe_stamp(record.stamp, serial=False)})
    return master_response(found)


# -- of topics as a whole


async def enable_authorization(request: WebApiRequest) -> list[Answer]:
    """Restrict topics to named groups, or stop that."""
    only = request.flag("isEnable", default=True)
    return [
        await run_item(
            _set_authorization(request, topic, only=only), topicName=format_tubemq(topic)
        )
        for topic in request.needed_topics
    ]


async def disable_authorization(request: WebApiRequest) -> list[Answer]:
    """Let all groups read topics."""
    return [
        await run_item(
            _set_authorization(request, topic, only=False), topicName=format_tubemq(topic)
        )
        for topic in request.needed_topics
    ]


async def _set_authorization(request: WebApiRequest, topic: TopicName, *, only: bool) -> None:
    request.check_access(ResourceKind.TOPIC, topic)
    rules = request.rules

    def decide() -> MetadataChange[None]:
        before = rules.topics.get(str(topic), NO_TOPIC_RECORD)
        stamp = request.stamp(before.stamp)
        return rules.plan_topic(topic, TopicRecord(named_groups_only=only, stamp=stamp))

    await request.commit_change(decide)


async def add_topic_control(request: WebApiRequest) -> list[Answer]:
    """Add settings for topics that do not exist yet; existing topics have them."""
    return await _run_for_topics(request, _add_topic_control)


async def _add_topic_control(request: WebApiRequest, topic: TopicName) -> None:
    if request.broker.cluster.find_topic(topic) is not None or str(topic) in request.rules.topics:
        raise ItemError(EXISTS, f"Existed record found for topicName({format_tubemq(topic)})!")
    if request.has("maxMsgSizeInMB"):
        raise ItemError(NOT_FOUND, "maxMsgSizeInMB: make the topic first, it keeps its own size")
    await _set_authorization(request, topic, only=request.flag("enableAuthControl", default=False))


async def update_topic_control(request: WebApiRequest) -> list[Answer]:
    """Set the largest message of topics, and whether only named groups may read them."""
    return await _run_for_topics(request, _update_topic_control)


async def _update_topic_control(request: WebApiRequest, topic: TopicName) -> None:
    size = request.number("maxMsgSizeInMB", 0, high=20)
    if size:
        check_message_mib(size)

        def find_existing() -> Topic:
            request.check_access(ResourceKind.TOPIC, topic)
            found = request.broker.cluster.find_topic(topic)
            if found is None:
                name = format_tubemq(topic)
                raise ItemError(
                    NOT_FOUND, f"Not found topic control configure for topicName({name})!"
                )
            return found

        await request.alter_topic(
            find_existing, lambda settings: settings.update({SIZE_KEY: str(size * MIB)})
        )
    if request.has("enableAuthControl"):
        await _set_authorization(request, topic, only=request.flag("enableAuthControl"))


async def delete_topic_control(request: WebApiRequest) -> list[Answer]:
    """Delete the settings of topics that do not exist."""
    return await _run_for_topics(request, _delete_topic_control)


async def _delete_topic_control(request: WebApiRequest, topic: TopicName) -> None:
    request.check_access(ResourceKind.TOPIC, topic)
    if request.broker.cluster.find_topic(topic) is not None:
        name = format_tubemq(topic)
        raise ItemError(
            NOT_NOW, f"TopicName {name} is in use, please delete deploy configure first!"
        )
    if str(topic) in request.rules.topics:
        await request.commit_change(lambda: request.rules.plan_topic(topic, None))


async def _run_for_topics(
    request: WebApiRequest, work: Callable[[WebApiRequest, TopicName], Awaitable[None]]
) -> list[Answer]:
    one = partial(work, request)
    return [
        await run_item(one(topic), topicName=format_tubemq(topic))
        for topic in request.needed_topics
    ]


GROUP, TOPIC = ResourceKind.GROUP, ResourceKind.TOPIC
SHOW, SET = Operation.DESCRIBE_SETTINGS, Operation.ALTER_SETTINGS


def _changes(name: str, handler: Any, kind: ResourceKind = GROUP) -> WebApiMethod:
    return WebApiMethod(name, handler, kind, SET, changes=True)


CONSUME_SET, GROUP_SET, FILTER_SET = "groupCsmJsonSet", "groupNameJsonSet", "filterCondJsonSet"
METHODS = (
    WebApiMethod("admin_query_group_csmctrl_info", query_records, GROUP, SHOW),
    WebApiMethod("admin_query_booked_csmctrl_groups", query_groups, GROUP, SHOW),
    _changes("admin_add_group_csmctrl_info", for_request(add_records)),
    _changes("admin_batch_add_group_csmctrl_info", for_records(CONSUME_SET, add_records)),
    _changes("admin_update_group_csmctrl_info", for_request(update_records)),
    _changes("admin_batch_update_group_csmctrl_info", for_records(CONSUME_SET, update_records)),
    _changes("admin_delete_group_csmctrl_info", for_request(delete_records)),
    _changes("admin_batch_delete_group_csmctrl_info", for_records(CONSUME_SET, delete_records)),
    WebApiMethod("admin_query_black_consumer_group_info", query_black_list, GROUP, SHOW),
    _changes("admin_add_black_consumergroup_info", for_request(add_to_black_list)),
    _changes("admin_bath_add_black_consumergroup_info", for_records(GROUP_SET, add_to_black_list)),
    _changes("admin_delete_black_consumergroup_info", for_request(remove_from_black_list)),
    _changes(
        "admin_batch_delete_black_consumergroup_info",
        for_records(GROUP_SET, remove_from_black_list),
    ),
    WebApiMethod("admin_query_allowed_consumer_group_info", query_named_groups, GROUP, SHOW),
    _changes("admin_add_authorized_consumergroup_info", for_request(name_groups)),
    _changes("admin_bath_add_authorized_consumergroup_info", for_records(GROUP_SET, name_groups)),
    _changes("admin_delete_allowed_consumer_group_info", for_request(unname_groups)),
    _changes(
        "admin_batch_del_authorized_consumergroup_info", for_records(GROUP_SET, unname_groups)
    ),
    WebApiMethod("admin_query_group_filtercond_info", query_filters, GROUP, SHOW),
    _changes("admin_add_group_filtercond_info", for_request(add_filters)),
    _changes("admin_bath_add_group_filtercond_info", for_records(FILTER_SET, add_filters)),
    _changes("admin_mod_group_filtercond_info", for_request(update_filters)),
    _changes("admin_bath_mod_group_filtercond_info", for_records(FILTER_SET, update_filters)),
    _changes("admin_del_group_filtercond_info", for_request(delete_filters)),
    _changes("admin_set_topic_authorize_control", for_request(enable_authorization), TOPIC),
    _changes(
        "admin_bath_add_topic_authorize_control",
        for_records("topicJsonSet", enable_authorization),
        TOPIC,
    ),
    _changes("admin_delete_topic_authorize_control", for_request(disable_authorization), TOPIC),
    _changes("admin_add_topic_control_info", for_request(add_topic_control), TOPIC),
    _changes(
        "admin_batch_add_topic_control_info",
        for_records("topicCtrlJsonSet", add_topic_control),
        TOPIC,
    ),
    _changes("admin_update_topic_control_info", for_request(update_topic_control), TOPIC),
    _changes(
        "admin_batch_update_topic_control_info",
        for_records("topicCtrlJsonSet", update_topic_control),
        TOPIC,
    ),
    _changes("admin_delete_topic_control_info", for_request(delete_topic_control), TOPIC),
)
