"""GET_TOPICS_OF_NAMESPACE and WATCH_TOPIC_LIST."""

from __future__ import annotations

import pytest

from tests.gateway.loop import on_loop
from tests.gateway.pulsar.rig import Rig, settle
from tests.waiting import pass_time
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.gateway.pulsar.metadata import topic_lists
from trilogue.gateway.pulsar.metadata.topic_lists import hash_names
from trilogue.gateway.pulsar.settings import PulsarSettings
from trilogue.wire.pulsar.errors import ServerError

DEFAULT = "persistent://public/default/"
NON_PERSISTENT, ALL = 1, 2


async def listed(peer, namespace: str = "public/default", **fields):
    return await peer.request(
        "getTopicsOfNamespace", "getTopicsOfNamespaceResponse", namespace=namespace, **fields
    )


async def watched(peer, pattern: str, watcher_id: int = 1, **fields):
    return await peer.request(
        "watchTopicList",
        "watchTopicListSuccess",
        namespace="public/default",
        topics_pattern=pattern,
        watcher_id=watcher_id,
        **fields,
    )


@on_loop
async def test_topics_are_listed_by_their_partitions():
    async with Rig() as rig:
        rig.topic("t")
        rig.topic("p", 2)
        peer = await rig.connected()

        answer = await listed(peer)

        expected = [f"{DEFAULT}{name}" for name in ("p-partition-0", "p-partition-1", "t")]
        assert list(answer.topics) == expected
        assert not answer.filtered
        assert answer.changed
        assert answer.topics_hash == hash_names(expected)
        assert list((await listed(peer, mode=ALL)).topics) == expected
        assert list((await listed(peer, mode=NON_PERSISTENT)).topics) == []
        assert list((await listed(peer, "public/empty")).topics) == []


def test_the_hash_is_pulsars():
    """Guava's crc32c over the sorted names, as TopicList.calculateHash of pulsar-common 4.0.7."""
    assert hash_names([]) == "00000000"
    assert hash_names(["b", "a"]) == hash_names(["a", "b"]) != hash_names(["a"])


@on_loop
async def test_a_pattern_filters_and_a_known_hash_gets_no_names():
    async with Rig() as rig:
        for name in ("orders", "orders-eu", "sales"):
            rig.topic(name)
        rig.topic("orders-many", 2)
        peer = await rig.connected()

        answer = await listed(peer, topics_pattern="persistent://public/default/orders-.*")

        many = [f"{DEFAULT}orders-many-partition-{index}" for index in range(2)]
        assert list(answer.topics) == [f"{DEFAULT}orders-eu", *many]
        assert answer.filtered
        again = await listed(
            peer, topics_pattern="public/default/orders-.*", topics_hash=answer.topics_hash
        )
        assert (list(again.topics), again.changed) == ([], False)
        assert again.topics_hash == answer.topics_hash


@on_loop
async def test_a_pattern_that_needs_a_search_is_left_to_its_client():
    async with Rig() as rig:
        rig.topic("t")
        peer = await rig.connected()

        answer = await listed(peer, topics_pattern="(a+)+b")

        assert list(answer.topics) == [f"{DEFAULT}t"]
        assert not answer.filtered


@on_loop
async def test_topic_list_hides_topics_without_permission():
    async with Rig() as rig:
        rig.topic("t")
        rig.topic("secret")
        rig.rules.deny(Operation.DESCRIBE, ResourceKind.TOPIC, "public/default/secret")
        peer = await rig.connected()

        assert list((await listed(peer)).topics) == [f"{DEFAULT}t"]


@on_loop
async def test_invalid_namespace_is_an_error():
    async with Rig() as rig:
        peer = await rig.connected()

        error = await peer.request("getTopicsOfNamespace", "error", namespace="public")

        assert error.error == ServerError.InvalidTopicName


@on_loop
async def test_watch_sends_created_and_deleted_topics():
    """PIP-145."""
    async with Rig() as rig:
        rig.topic("orders-1")
        peer = await rig.connected()
        first = await watched(peer, "public/default/orders-.*")
        assert list(first.topic) == [f"{DEFAULT}orders-1"]

        rig.topic("orders-2", 2)
        rig.topic("sales")
        assert peer.answered == 0  # changes within a short time are sent together
        came = await peer.answer("watchTopicUpdate")
        await rig.commit(rig.broker.cluster.plan_delete(rig.name("orders-1")))
        went = await peer.answer("watchTopicUpdate")

        two = [f"{DEFAULT}orders-2-partition-{index}" for index in range(2)]
        assert (list(came.new_topics), list(came.deleted_topics)) == (two, [])
        assert came.topics_hash == hash_names([f"{DEFAULT}orders-1", *two])
        assert (list(went.new_topics), list(went.deleted_topics)) == ([], [f"{DEFAULT}orders-1"])
        assert went.topics_hash == hash_names(two)
        await settle()
        assert peer.answered == 0


@on_loop
async def test_watch_sends_added_partitions():
    async with Rig() as rig:
        rig.topic("orders", 1)
        peer = await rig.connected()
        await watched(peer, ".*")

        await rig.commit(rig.broker.cluster.plan_add_partitions(rig.name("orders"), 3))

        came = await peer.answer("watchTopicUpdate")
        assert list(came.new_topics) == [f"{DEFAULT}orders-partition-{n}" for n in (1, 2)]


@on_loop
async def test_closed_watch_sends_nothing():
    async with Rig() as rig:
        peer = await rig.connected()
        await watched(peer, ".*", 4)
        await peer.request("watchTopicListClose", "success", watcher_id=4)

        rig.topic("t")
        await pass_time(1)

        assert peer.answered == 0


@on_loop
async def test_stuck_peer_receives_one_merged_watch_update():
    async with Rig() as rig:
        peer = await rig.connected()
        await watched(peer, ".*")
        peer.transport.stuck = True
        peer.connection.write(b"\0\0\0\0" * 100_000)
        peer.connection.flush()
        frames = peer.answered

        rig.topic("a")
        rig.topic("b")
        await pass_time(1)
        await rig.commit(rig.broker.cluster.plan_delete(rig.name("a")))
        await pass_time(1)
        peer.transport.unstick()
        await settle()

        peer._read += frames
        update = await peer.answer("watchTopicUpdate")
        assert list(update.new_topics) == [f"{DEFAULT}b"]
        assert list(update.deleted_topics) == [f"{DEFAULT}a"]


@on_loop
async def test_watches_end_with_their_connection():
    async with Rig() as rig:
        peer = await rig.connected()
        listeners = len(rig.broker.cluster.listeners)
        await watched(peer, ".*")

        peer.transport.close()

        assert len(rig.broker.cluster.listeners) == listeners


@on_loop
async def test_long_lists_are_made_in_steps_and_read_like_short_ones(
    monkeypatch: pytest.MonkeyPatch,
):
    """Also what changes while the names of a watch are gathered."""
    monkeypatch.setattr(topic_lists, "NAMES_PER_STEP", 2)
    async with Rig() as rig:
        for number in range(5):
            rig.topic(f"t{number}", 2)
        peer = await rig.connected()
        names = [f"{DEFAULT}t{topic}-partition-{each}" for topic in range(5) for each in (0, 1)]

        assert list((await listed(peer)).topics) == names
        peer.send_command(
            "watchTopicList",
            namespace="public/default",
            topics_pattern=".*",
            watcher_id=1,
            request_id=7,
        )
        await peer.answer("watchTopicListSuccess")
        rig.topic("t5")
        update = await peer.answer("watchTopicUpdate")

        assert list(update.new_topics) == [f"{DEFAULT}t5"]
        assert update.topics_hash == hash_names([*names, f"{DEFAULT}t5"])


@on_loop
async def test_a_long_list_ends_with_its_connection(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(topic_lists, "NAMES_PER_STEP", 1)
    async with Rig() as rig:
        for number in range(5):
            rig.topic(f"t{number}", 2)
        peer = await rig.connected()
        listeners = len(rig.broker.cluster.listeners)
        fields = {"namespace": "public/default", "topics_pattern": ".*"}
        peer.send_command("watchTopicList", watcher_id=1, request_id=7, **fields)
        peer.transport.close()
        await settle()

        assert len(rig.broker.cluster.listeners) == listeners
        assert (rig.gateway.watches, rig.gateway.watched_topics) == (0, 0)
        other = await rig.connected()
        assert len((await listed(other)).topics) == 10


@on_loop
async def test_watches_of_all_connections_are_bounded():
    settings = PulsarSettings(all_watchers_max=3, watched_topics_max=4)
    async with Rig(pulsar=settings) as rig:
        for name in ("a", "b"):
            rig.topic(name)
        first, second = await rig.connected(), await rig.connected()
        fields = {"namespace": "public/default", "topics_pattern": ".*"}
        await watched(first, ".*", 1)
        await watched(second, ".*", 1)

        error = await second.request("watchTopicList", "error", watcher_id=2, **fields)
        assert "as many topics as they may" in error.message
        await watched(second, "public/default/c", 2)
        error = await first.request("watchTopicList", "error", watcher_id=2, **fields)
        assert "as many watches as it may" in error.message

        first.transport.close()
        assert (rig.gateway.watches, rig.gateway.watched_topics) == (2, 2)


@pytest.mark.parametrize("pattern", ["(a+)+b", "a{1000}", "[", "x" * 1_000])
def test_a_watch_of_what_cannot_be_evaluated_is_refused(pattern):
    """Clients whose watch is refused look from time to time (pulsar.md §1)."""

    @on_loop
    async def scenario():
        async with Rig() as rig:
            peer = await rig.connected()
            fields = {"namespace": "public/default", "watcher_id": 1, "topics_pattern": pattern}

            error = await peer.request("watchTopicList", "error", **fields)

            assert error.error == ServerError.NotAllowedError

    scenario()
