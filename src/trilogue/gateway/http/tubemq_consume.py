"""Who may read what: TubeMQ's black lists, named groups, filters that are prescribed.

All of it is one record for each group and topic (broker/group_rules.py). Older methods say one
thing of it each, newer ones (`..._group_csmctrl_info`) all of it.

A real master looks at the black list and at filters only for topics whose authorization is on. Here
they hold wherever they are said.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from msgspec.structs import replace

from trilogue.broker.access import Operation, ResourceKind
from trilogue.broker.commit import Commit
from trilogue.broker.group_rules import (
    MIB,
    NOTHING_OF_TOPIC,
    SIZE_KEY,
    ConsumeSaid,
    TopicSaid,
    check_message_mib,
)
from trilogue.broker.names import TopicName, spelled_tubemq
from trilogue.broker.topic import Topic
from trilogue.gateway.http.changing import alter_topic, carry_out
from trilogue.gateway.http.tubemq_asked import (
    EXISTS,
    NOT_FOUND,
    NOT_NOW,
    UNCHANGED,
    Answer,
    Asked,
    Failed,
    Row,
    Wrong,
    batch,
    each,
    ok,
    single,
    stamped,
)
from trilogue.gateway.http.tubemq_topic_views import (
    CONDITION_ON,
    consume_of,
    filters,
)

BLACK = "on the black list"
Change = Callable[[ConsumeSaid | None], ConsumeSaid | None]
NOTHING = ConsumeSaid(named=False)


# -- changes


async def _said(asked: Asked, change: Change, *, with_topic: bool = False) -> list[Answer]:
    """Do something about each group and topic that is named."""
    found = []
    for group in asked.needed_groups:
        for topic in asked.needed_topics:
            named = {"groupName": group}
            if with_topic:
                named["topicName"] = spelled_tubemq(topic)
            found.append(await each(_change(asked, group, topic, change), **named))
    return found


async def _change(asked: Asked, group: str, topic: TopicName, change: Change) -> None:
    asked.check(ResourceKind.GROUP, group)
    asked.check(ResourceKind.TOPIC, topic)
    rules = asked.rules

    def decide() -> Commit[None]:
        before = rules.consume(group, str(topic))
        after = change(before)
        if after is not None:
            if after == before:
                raise Failed(UNCHANGED, "Consume control configure not changed!")
            after = replace(after, stamp=asked.stamp(before.stamp if before else None))
        return rules.plan_consume(group, topic, after)

    await carry_out(asked.door, decide)


def _tidy(said: ConsumeSaid) -> ConsumeSaid | None:
    """None where nothing is left that would be another thing than nothing said."""
    return None if said.may and not said.named and not said.filtered else said


async def add(asked: Asked) -> list[Answer]:
    """Say something of groups and topics of which nothing was said."""

    def change(before: ConsumeSaid | None) -> ConsumeSaid:
        if before is not None:
            raise Failed(EXISTS, "Existed record found for this group and topic!")
        return _given(asked, ConsumeSaid())

    return await _said(asked, change, with_topic=True)


async def update(asked: Asked) -> list[Answer]:
    """Change what is said of them."""

    def change(before: ConsumeSaid | None) -> ConsumeSaid:
        return _given(asked, _there(before))

    return await _said(asked, change, with_topic=True)


async def delete(asked: Asked) -> list[Answer]:
    """Forget it."""
    if asked.has("topicName"):
        return await _said(asked, lambda _: None, with_topic=True)
    wanted, found = set(asked.needed_groups), []
    for group, topic, _ in list(asked.rules.every_consume()):
        if group in wanted:
            of_one = asked.of({"groupName": group, "topicName": topic})
            found += await _said(of_one, lambda _: None, with_topic=True)
    return found


def _there(before: ConsumeSaid | None) -> ConsumeSaid:
    if before is None:
        raise Failed(NOT_FOUND, "Not found consume control configure for this group and topic!")
    return before


def _given(asked: Asked, before: ConsumeSaid) -> ConsumeSaid:
    may = asked.flag("consumeEnable", default=before.may)
    return replace(
        before,
        named=before.named or asked.has("consumeEnable"),
        may=may,
        reason=asked.text("disableCsmRsn", before.reason),
        filtered=asked.flag("filterEnable", default=before.filtered),
        filters=_filters(asked, before),
    )


def _filters(asked: Asked, before: ConsumeSaid) -> tuple[str, ...]:
    return tuple(asked.names("filterConds")) if asked.has("filterConds") else before.filters


async def blacken(asked: Asked) -> list[Answer]:
    """Put groups on the black list of topics."""
    _check_there(asked)
    reason = asked.text("reason", BLACK)
    return await _said(asked, lambda before: replace(before or NOTHING, may=False, reason=reason))


async def whiten(asked: Asked) -> list[Answer]:
    """Take them off it."""

    def change(before: ConsumeSaid | None) -> ConsumeSaid | None:
        if before is None or before.may:
            return before if before is None else _tidy(before)
        return _tidy(replace(before, may=True, reason=""))

    return await _quietly(asked, change)


async def authorize(asked: Asked) -> list[Answer]:
    """Name groups as those that may read topics which only named groups may."""
    _check_there(asked)
    return await _quietly(asked, lambda before: replace(before or NOTHING, named=True))


async def unauthorize(asked: Asked) -> list[Answer]:
    """Name them no more."""
    return await _quietly(asked, lambda before: before and _tidy(replace(before, named=False)))


async def _quietly(asked: Asked, change: Change) -> list[Answer]:
    """What older methods do: that nothing had to be changed is no failure of theirs."""
    found = await _said(asked, change)
    for answer in found:
        if answer["errCode"] == UNCHANGED:
            answer.update(success=True, errCode=200, errInfo="Ok")
    return found


async def add_filters(asked: Asked) -> list[Answer]:
    """Prescribe the filters that groups may read topics with."""
    _check_there(asked)
    return await _said(asked, lambda before: _conditions(asked, before or ConsumeSaid()))


async def update_filters(asked: Asked) -> list[Answer]:
    """Prescribe others."""
    return await _said(asked, lambda before: _conditions(asked, _there(before)))


async def delete_filters(asked: Asked) -> list[Answer]:
    """Let groups read topics with any filters."""
    return await _quietly(
        asked, lambda before: before and _tidy(replace(before, filtered=False, filters=()))
    )


def _conditions(asked: Asked, before: ConsumeSaid) -> ConsumeSaid:
    filtered = before.filtered
    if asked.has("condStatus"):
        filtered = asked.number("condStatus", high=CONDITION_ON) == CONDITION_ON
    return replace(before, filtered=filtered, filters=_filters(asked, before))


def _check_there(asked: Asked) -> None:
    for topic in asked.needed_topics:
        if asked.broker.cluster.find(topic) is None:
            raise Wrong(
                f"topicName value {spelled_tubemq(topic)} is not configure, please configure first!"
            )


# -- queries


def _wanted(asked: Asked) -> list[tuple[str, str, ConsumeSaid]]:
    """Group, topic and what was said of them, of those that are asked for."""
    groups, topics = set(asked.groups), {str(each): each for each in asked.topics}
    found = []
    for group, topic, said in asked.rules.every_consume():
        if (groups and group not in groups) or (topics and topic not in topics):
            continue
        if asked.allowed(ResourceKind.GROUP, group):
            tenant, _, rest = topic.partition("/")
            namespace, _, name = rest.rpartition("/")
            found.append((group, spelled_tubemq(TopicName(tenant, namespace, name)), said))
    return found


def query(asked: Asked) -> Answer:
    """Tell all that was said."""
    return ok([consume_of(topic, group, said) for group, topic, said in _wanted(asked)])


def query_groups(asked: Asked) -> Answer:
    """Name the groups of which something was said."""
    return ok(list(dict.fromkeys(group for group, _, _ in _wanted(asked))))


def query_black(asked: Asked) -> Answer:
    """Tell the black list."""
    return ok(
        [
            {
                "groupName": group,
                "topicName": topic,
                "reason": said.reason,
                **stamped(said.stamp, serial=False),
            }
            for group, topic, said in _wanted(asked)
            if not said.may
        ]
    )


def query_authorized(asked: Asked) -> Answer:
    """Tell the groups that are named."""
    return ok(
        [
            {"topicName": topic, "groupName": group, **stamped(said.stamp, serial=False)}
            for group, topic, said in _wanted(asked)
            if said.named and said.may
        ]
    )


def query_filters(asked: Asked) -> Answer:
    """Tell the filters that are prescribed."""
    status = asked.number("condStatus", -1, low=-1, high=CONDITION_ON)
    found = []
    for group, topic, said in _wanted(asked):
        told = filters(said)
        if status in {-1, told["condStatus"]}:
            named = {"topicName": topic, "groupName": group}
            found.append({**named, **told, **stamped(said.stamp, serial=False)})
    return ok(found)


# -- of topics as a whole


async def enable(asked: Asked) -> list[Answer]:
    """Say whether only named groups may read topics."""
    only = asked.flag("isEnable", default=True)
    return [
        await each(_enable(asked, topic, only=only), topicName=spelled_tubemq(topic))
        for topic in asked.needed_topics
    ]


async def disable(asked: Asked) -> list[Answer]:
    """Let all groups read topics."""
    return [
        await each(_enable(asked, topic, only=False), topicName=spelled_tubemq(topic))
        for topic in asked.needed_topics
    ]


async def _enable(asked: Asked, topic: TopicName, *, only: bool) -> None:
    asked.check(ResourceKind.TOPIC, topic)
    rules = asked.rules

    def decide() -> Commit[None]:
        before = rules.topics.get(str(topic), NOTHING_OF_TOPIC)
        stamp = asked.stamp(before.stamp)
        return rules.plan_topic(topic, TopicSaid(named_groups_only=only, stamp=stamp))

    await carry_out(asked.door, decide)


async def add_control(asked: Asked) -> list[Answer]:
    """Say something of topics that are not there yet; of others it is said already."""
    return await _controls(asked, _add_control)


async def _add_control(asked: Asked, topic: TopicName) -> None:
    if asked.broker.cluster.find(topic) is not None or str(topic) in asked.rules.topics:
        raise Failed(EXISTS, f"Existed record found for topicName({spelled_tubemq(topic)})!")
    if asked.has("maxMsgSizeInMB"):
        raise Failed(NOT_FOUND, "maxMsgSizeInMB: make the topic first, it keeps its own size")
    await _enable(asked, topic, only=asked.flag("enableAuthControl", default=False))


async def update_control(asked: Asked) -> list[Answer]:
    """Say how large messages of topics may be, and whether only named groups may read them."""
    return await _controls(asked, _update_control)


async def _update_control(asked: Asked, topic: TopicName) -> None:
    size = asked.number("maxMsgSizeInMB", 0, high=20)
    if size:
        check_message_mib(size)

        def find() -> Topic:
            asked.check(ResourceKind.TOPIC, topic)
            found = asked.broker.cluster.find(topic)
            if found is None:
                name = spelled_tubemq(topic)
                raise Failed(NOT_FOUND, f"Not found topic control configure for topicName({name})!")
            return found

        await alter_topic(
            asked.door, find, lambda settings: settings.update({SIZE_KEY: str(size * MIB)})
        )
    if asked.has("enableAuthControl"):
        await _enable(asked, topic, only=asked.flag("enableAuthControl"))


async def delete_control(asked: Asked) -> list[Answer]:
    """Forget what was said of topics that are not there."""
    return await _controls(asked, _delete_control)


async def _delete_control(asked: Asked, topic: TopicName) -> None:
    asked.check(ResourceKind.TOPIC, topic)
    if asked.broker.cluster.find(topic) is not None:
        name = spelled_tubemq(topic)
        raise Failed(NOT_NOW, f"TopicName {name} is in use, please delete deploy configure first!")
    if str(topic) in asked.rules.topics:
        await carry_out(asked.door, lambda: asked.rules.plan_topic(topic, None))


async def _controls(
    asked: Asked, work: Callable[[Asked, TopicName], Awaitable[None]]
) -> list[Answer]:
    one = partial(work, asked)
    return [
        await each(one(topic), topicName=spelled_tubemq(topic)) for topic in asked.needed_topics
    ]


GROUP, TOPIC = ResourceKind.GROUP, ResourceKind.TOPIC
SHOW, SET = Operation.DESCRIBE_SETTINGS, Operation.ALTER_SETTINGS


def _changes(name: str, handler: Any, kind: ResourceKind = GROUP) -> Row:
    return Row(name, handler, kind, SET, changes=True)


CONSUME_SET, GROUP_SET, FILTER_SET = "groupCsmJsonSet", "groupNameJsonSet", "filterCondJsonSet"
ROWS = (
    Row("admin_query_group_csmctrl_info", query, GROUP, SHOW),
    Row("admin_query_booked_csmctrl_groups", query_groups, GROUP, SHOW),
    _changes("admin_add_group_csmctrl_info", single(add)),
    _changes("admin_batch_add_group_csmctrl_info", batch(CONSUME_SET, add)),
    _changes("admin_update_group_csmctrl_info", single(update)),
    _changes("admin_batch_update_group_csmctrl_info", batch(CONSUME_SET, update)),
    _changes("admin_delete_group_csmctrl_info", single(delete)),
    _changes("admin_batch_delete_group_csmctrl_info", batch(CONSUME_SET, delete)),
    Row("admin_query_black_consumer_group_info", query_black, GROUP, SHOW),
    _changes("admin_add_black_consumergroup_info", single(blacken)),
    _changes("admin_bath_add_black_consumergroup_info", batch(GROUP_SET, blacken)),
    _changes("admin_delete_black_consumergroup_info", single(whiten)),
    _changes("admin_batch_delete_black_consumergroup_info", batch(GROUP_SET, whiten)),
    Row("admin_query_allowed_consumer_group_info", query_authorized, GROUP, SHOW),
    _changes("admin_add_authorized_consumergroup_info", single(authorize)),
    _changes("admin_bath_add_authorized_consumergroup_info", batch(GROUP_SET, authorize)),
    _changes("admin_delete_allowed_consumer_group_info", single(unauthorize)),
    _changes("admin_batch_del_authorized_consumergroup_info", batch(GROUP_SET, unauthorize)),
    Row("admin_query_group_filtercond_info", query_filters, GROUP, SHOW),
    _changes("admin_add_group_filtercond_info", single(add_filters)),
    _changes("admin_bath_add_group_filtercond_info", batch(FILTER_SET, add_filters)),
    _changes("admin_mod_group_filtercond_info", single(update_filters)),
    _changes("admin_bath_mod_group_filtercond_info", batch(FILTER_SET, update_filters)),
    _changes("admin_del_group_filtercond_info", single(delete_filters)),
    _changes("admin_set_topic_authorize_control", single(enable), TOPIC),
    _changes("admin_bath_add_topic_authorize_control", batch("topicJsonSet", enable), TOPIC),
    _changes("admin_delete_topic_authorize_control", single(disable), TOPIC),
    _changes("admin_add_topic_control_info", single(add_control), TOPIC),
    _changes("admin_batch_add_topic_control_info", batch("topicCtrlJsonSet", add_control), TOPIC),
    _changes("admin_update_topic_control_info", single(update_control), TOPIC),
    _changes(
        "admin_batch_update_topic_control_info", batch("topicCtrlJsonSet", update_control), TOPIC
    ),
    _changes("admin_delete_topic_control_info", single(delete_control), TOPIC),
)
