"""Replication that a client requests (docs/decisions/0060, 0104).

A replication factor above 1 and a `min.insync.replicas` above 1 promise copies that one node does
not have. Without `kafka.accept-replication` both are refused with advice. With it both are taken as
1, with a warning in the log: CreateTopics, Metadata and DescribeConfigs report 1.

Nodes with `ack=shared` accept both up to the number of nodes: each can serve what is acknowledged.
So a `min.insync.replicas` is always met there; it is kept as requested.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from trilogue.broker.errors import InvalidSetting, ReplicationFactor
from trilogue.broker.settings.topic_settings import Change
from trilogue.broker.settings.topic_table import MIN_IN_SYNC
from trilogue.gateway.kafka.context import RequestContext

log = logging.getLogger(__name__)

ADVICE = "or set kafka.accept-replication=true on the node, which takes it as 1"

Changes = list[tuple[str, Change, str | None]]


def check_replication_factor(context: RequestContext, topic: str, factor: int) -> int:
    """Return the factor to create a topic with; raises ReplicationFactor for one above 1."""
    if factor <= 1:
        return factor
    most = context.broker.cluster.ownership.copies_max
    if factor <= most:
        return 1
    if not context.gateway.settings.accept_replication:
        raise ReplicationFactor(
            f"replication factor {factor}: {_describe_nodes(most)}."
            f" Use {most}, or -1 for the default, {ADVICE}"
        )
    _warn(context, topic, "replication.factor", factor)
    return 1


def check_min_in_sync(
    context: RequestContext, topic: str, changes: Iterable[tuple[str, Change, str | None]]
) -> Changes:
    """Return the changes to make.

    Raises InvalidSetting for a `min.insync.replicas` above the number of nodes that can serve a
    partition with all that is acknowledged.
    """
    kept: Changes = []
    most = context.broker.cluster.ownership.copies_max
    for key, change, value in changes:
        if key == MIN_IN_SYNC and change is Change.SET and _is_above_1(value):
            if int(value or 0) <= most:
                kept.append((key, change, value))
                continue
            if not context.gateway.settings.accept_replication:
                raise InvalidSetting(
                    f"{MIN_IN_SYNC}={value}: {_describe_nodes(most)}."
                    f" Leave it out or set it to {most}, {ADVICE}"
                )
            _warn(context, topic, MIN_IN_SYNC, value)
            kept.append((key, change, "1"))
        else:
            kept.append((key, change, value))
    return kept


def _describe_nodes(most: int) -> str:
    if most == 1:
        return "there is one node, which keeps one synced copy"
    return f"there are {most} nodes"


def _is_above_1(value: str | None) -> bool:
    text = (value or "").strip()
    return text.isascii() and text.isdigit() and len(text) < 10 and int(text) > 1


def _warn(context: RequestContext, topic: str, setting: str, requested: object) -> None:
    log.warning(
        "topic.replication_taken_as_1",
        extra={
            "topic": topic,
            "setting": setting,
            "requested": requested,
            "client": context.client_id or "",
        },
    )
