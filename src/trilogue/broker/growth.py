"""What more partitions of a topic mean for those who are subscribed to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trilogue.broker.promise import Promise
    from trilogue.broker.subscriptions import Cursor, Subscriptions
    from trilogue.broker.topic import Topic


def subscribe_new(subscriptions: Subscriptions, topic: Topic, first: int) -> list[Promise[Cursor]]:
    """Let a topic's durable subscriptions have its new partitions, from their beginning.

    The subscriptions are those of partition 0; `first` is the index of the first new partition.
    """
    known = list(subscriptions.of(topic.partitions[0].partition_id).values())
    return [
        subscriptions.create(partition.partition_id, cursor.name, 0, cursor.properties)
        for cursor in known
        for partition in topic.partitions[first:]
    ]
