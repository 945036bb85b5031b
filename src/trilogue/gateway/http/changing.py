"""How administration changes a topic or a rule: one change at a time, decided on what is there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from trilogue.broker.commit import Commit
from trilogue.broker.errors import Outrun
from trilogue.broker.growth import subscribe_new
from trilogue.broker.names import TopicName
from trilogue.broker.promise import Promise
from trilogue.broker.topic import Topic
from trilogue.gateway.doorway import Doorway

TRIES = 20  # to decide again, when others change the same thing at the same time
T = TypeVar("T")


async def carry_out(door: Doorway, decide: Callable[[], Commit[T]]) -> T:
    """Do what is decided, deciding again when somebody else was faster."""
    for _ in range(TRIES):
        commit = decide()
        try:
            await door.commit(commit)
        except Outrun:
            continue
        return commit.done.result()
    raise Outrun("others change the same thing all the time")


async def delete_topic(door: Doorway, name: TopicName) -> None:
    """Delete a topic, when no change of it is under way."""
    cluster = door.broker.cluster
    while (pending := cluster.altering(name)) is not None:
        await settled(pending)
    await door.commit(cluster.plan_delete(name))


async def alter_topic(
    door: Doorway, find: Callable[[], Topic], change: Callable[[dict[str, str]], None]
) -> Topic:
    """Change what a topic's row keeps, when no other change of it is under way."""
    cluster = door.broker.cluster
    topic = find()
    while (pending := cluster.altering(topic.name)) is not None:
        await settled(pending)
        topic = find()
    settings = dict(topic.settings)
    change(settings)
    if settings == topic.settings:
        return topic
    commit = cluster.plan_alter(topic.name, settings)
    await door.commit(commit)
    return commit.done.result()


async def grow_topic(door: Doorway, find: Callable[[], Topic], count: int) -> None:
    """Give a topic so many partitions, and its subscriptions the new ones; never fewer."""
    cluster = door.broker.cluster
    topic = find()
    while (pending := cluster.altering(topic.name)) is not None:
        await settled(pending)
        topic = find()
    now = len(topic.partitions)
    if count > now:
        commit = cluster.plan_grow(topic.name, count)
        await door.commit(commit)
        for made in subscribe_new(door.broker.subscriptions, commit.done.result(), now):
            await settled(made)


async def settled(promise: Promise[T]) -> None:
    """Return when a promise is kept or broken."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    promise.then(lambda _: None if future.done() else future.set_result(None))
    await future


async def kept(promise: Promise[T]) -> T:
    """Return what a promise came to, or raise why not."""
    await settled(promise)
    return promise.result()
