"""Requests about streams groups (KIP-1071): joins, topologies, tasks, positions, descriptions."""

from __future__ import annotations

import time
from typing import Any

from tools.kafka_answers.asking import Questions
from tools.kafka_answers.questions import BIG

Spec = dict[str, Any]
EMPTY: Spec = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
DELAY_S = 4.0  # of the first assignment of a group, with some room


def _topology(a: Questions, *, epoch: int = 0, **fields: Any) -> Spec:
    sub = {"subtopology_id": "0", "source_topics": [a.named("a")]} | fields
    return {"epoch": epoch, "subtopologies": [sub]}


def _join(a: Questions, group: str, **more: Any) -> Spec:
    first = {"group_id": a.named(group), "member_id": "m", "rebalance_timeout_ms": 5000}
    return first | {"topology": _topology(a), "process_id": "p"} | EMPTY | more


def streams_groups(a: Questions) -> None:
    """Heartbeats that join, one group each, and the life of one group."""
    if 88 not in a.range:
        return

    def beat(title: str, **more: Any) -> None:
        a.every(88, title, _join(a, f"sb {title}", **more))

    tasks = [{"subtopology_id": "0", "partitions": [0]}]
    beat("joins")
    beat("no group", group_id="")
    beat("blank group", group_id=" ")
    beat("empty member", member_id="")
    beat("empty rack", rack_id="")
    beat("instance", instance_id="i")
    for wait in (-1, 0, -2):
        beat(f"rebalance {wait}", rebalance_timeout_ms=wait)
    for epoch in (-3, -2, -1, 1, BIG):
        beat(f"epoch {epoch}", member_epoch=epoch)
        beat(f"epoch {epoch}, no topology", member_epoch=epoch, topology=None)
    for role in EMPTY:
        beat(f"{role} told", **{role: tasks})
        beat(f"{role} missing", **{role: None})
    beat("no topology", topology=None)
    beat("task offsets", task_offsets=[])
    beat("no subtopologies", topology={"epoch": 0, "subtopologies": []})
    beat("no sources", topology=_topology(a, source_topics=[]))
    beat("unknown source", topology=_topology(a, source_topics=[a.named("no")]))
    beat("bad source", topology=_topology(a, source_topics=["a b"]))
    beat("internal source", topology=_topology(a, source_topics=["__consumer_offsets"]))
    beat("pattern", topology=_topology(a, source_topic_regex=["a.*"]))
    changelog = {"name": a.named("sb-changelog"), "partitions": 2}
    beat("counted changelog", topology=_topology(a, state_changelog_topics=[changelog]))
    alone = [{"name": a.named("sb-alone")}]
    beat("source of nothing", topology=_topology(a, repartition_source_topics=alone))
    loop = {"repartition_source_topics": alone, "repartition_sink_topics": [a.named("sb-alone")]}
    beat("loop", topology=_topology(a, source_topics=[], **loop))
    sized = [{"name": a.named("a"), "partitions": 77}]
    beat("other size", topology=_topology(a, repartition_source_topics=sized))
    a.every(89, "none", {"group_ids": [a.named("none")]})
    a.every(89, "empty name", {"group_ids": [""]})
    _life(a)


def _life(a: Questions) -> None:
    group = a.named("sg")
    first = a.request(88, 0, _join(a, "sg"))
    a.note("streams: joined", 0, first)
    client: Spec = {"group_id": group, "member_id": "m"}
    time.sleep(DELAY_S)
    second = a.request(88, 0, client | {"member_epoch": first.member_epoch})
    a.note("streams: assigned", 0, second)
    at = second.member_epoch
    now = client | {"member_epoch": at}
    owned = EMPTY | {"active_tasks": [{"subtopology_id": "0", "partitions": [0, 1, 2]}]}
    unknown = EMPTY | {"active_tasks": [{"subtopology_id": "7", "partitions": [0]}]}
    partition = {"partition_index": 0, "committed_offset": 5, "committed_metadata": "m"}
    offset = {"topics": [{"name": a.named("a"), "partitions": [partition]}]}
    plain = {"topics": [{"name": a.named("a"), "partitions": [{"partition_index": 0}]}]}
    commit = {"group_id": group, "member_id": "m"} | offset
    positions = {"group_id": group, "topics": None, "member_id": "m"}
    other = _topology(a, subtopology_id="1")
    steps: list[tuple[str, int, int, Spec]] = [
        ("beat", 88, 0, now),
        ("told", 88, 0, now | owned),
        ("unknown task", 88, 0, now | unknown),
        ("ahead", 88, 0, client | {"member_epoch": at + 1}),
        ("stranger", 88, 0, now | {"member_id": "x"}),
        ("other topology", 88, 0, _join(a, "sg", member_id="n", topology=other)),
        ("described", 89, 0, {"group_ids": [group]}),
        ("described as classic", 15, 6, {"groups": [group]}),
        ("described as consumer", 69, 0, {"group_ids": [group]}),
        ("commit", 8, 9, commit | {"generation_id_or_member_epoch": at}),
        ("commit, old", 8, 8, commit | {"generation_id_or_member_epoch": at}),
        ("commit ahead", 8, 9, commit | {"generation_id_or_member_epoch": at + 1}),
        ("commit of nobody", 8, 9, {"group_id": group} | offset),
        ("positions", 9, 9, {"groups": [positions | {"member_epoch": at}]}),
        ("positions ahead", 9, 9, {"groups": [positions | {"member_epoch": at + 1}]}),
        ("consumer heartbeat", 68, 0, {"group_id": group, "rebalance_timeout_ms": 5000,
          "subscribed_topic_names": [a.named("a")], "topic_partitions": []}),
        ("classic heartbeat", 12, 4, {"group_id": group, "member_id": "m", "generation_id": at}),
        ("deleted", 42, 2, {"groups_names": [group]}),
        ("offsets deleted", 47, 0, {"group_id": group} | plain),
        ("leaves", 88, 0, client | {"member_epoch": -1}),
        ("leaves again", 88, 0, client | {"member_epoch": -1}),
        ("described empty", 89, 0, {"group_ids": [group]}),
        ("deleted empty", 42, 2, {"groups_names": [group]}),
    ]  # fmt: skip
    for title, key, version, words in steps:
        a.note(f"streams: {title}", version, a.request(key, version, words))


FAMILIES = {"streams-groups": streams_groups}
