"""A flush that meta has no room for leaves nothing behind, and one of any size fits a commit."""

from __future__ import annotations

from tests.node.test_background import append, make_topic, scenario
from tests.waiting import wait_on_loop
from trilogue.broker.facts import CursorMove, Protocol
from trilogue.broker.topics.cluster import ClusterLimits
from trilogue.meta.operations import OPS_MAX

PAGES = "PRAGMA max_page_count = {}"


def segments(node):
    return [path.name for path in node.storage.directory.segments.glob("*.segment")]


def test_a_flush_that_finds_no_room_in_meta_leaves_no_segment_behind(tmp_path):
    """Each try makes a segment of its own: on a full disk those of failed tries would fill it."""

    @scenario(tmp_path / "data")
    async def _(node):
        topic = await make_topic(node)
        await append(node, topic, b"kept")
        partition_id = topic.partitions[0].partition_id
        for number in range(50):  # their snapshots need more pages than meta has
            move = CursorMove(partition_id, number, metadata="x" * 4_000)
            node.storage.broker.commit(Protocol.KAFKA, f"group {number}", [move])
        node.storage.meta._connection.execute(PAGES.format(1))
        await append(node, topic, b"kept too")
        node.storage.log.seal()
        await wait_on_loop(lambda: node.flusher.counts.failures == 2)
        assert segments(node) == []

        node.storage.meta._connection.execute(PAGES.format(1 << 20))
        await wait_on_loop(lambda: node.flusher.counts.flushes)

        assert len(segments(node)) == 1
        assert topic.partitions[0].log.flushed_end == 2


def test_a_flush_of_every_partition_there_may_be_fits_into_one_commit():
    """Ends, the segment and how far the journal is flushed are true together or not at all."""
    assert ClusterLimits().partitions_max + 2 <= OPS_MAX
