"""Unused segments are removed completely, whatever happens in between."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from tests.node.test_background import append, make_topic, scenario
from tests.waiting import wait_on_loop
from trilogue.log.partition_log import SegmentSlice
from trilogue.meta.operations import DeleteSegment


async def flushed_and_deleted(node):
    """A segment in which nothing is left, and how one would have read it."""
    topic = await make_topic(node)
    await append(node, topic, b"old")
    node.storage.log.seal()
    await wait_on_loop(lambda: node.flusher.counts.flushes)
    found = topic.partitions[0].log.read(0, 1_000)
    assert isinstance(found, SegmentSlice)
    await node.metadata_writer.write(node.storage.broker.cluster.plan_delete(topic.name))
    (segment_id,) = node.storage.log.dead_segments()
    return segment_id, found


def open_segments(data: Path):
    """Segment files of this server that the process holds open, removed ones too."""
    names = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            names.append(str(link.readlink()))
    return [name for name in names if name.startswith(str(data)) and ".segment" in name]


def test_retention_goes_on_where_a_full_disk_stopped_it(tmp_path):
    """Meta may have forgotten a part of the dead segments when it ran out of room."""

    @scenario(tmp_path / "data")
    async def _(node):
        segment_id, _ = await flushed_and_deleted(node)
        await node.storage.meta.write([DeleteSegment(segment_id)], (), node.storage.fence)

        await node.retention.apply_retention()

        assert node.storage.log.dead_segments() == []


def test_a_late_reader_does_not_keep_a_removed_segment(tmp_path):
    """Its read was planned before the segment was retired; an open file keeps its room."""

    @scenario(tmp_path / "data", "segments.grace=0")
    async def _(node):
        _, found = await flushed_and_deleted(node)
        node.retired.grace_s = 3_600
        await node.retention.apply_retention()
        found.run()
        assert len(open_segments(tmp_path)) == 1

        node.retired._monotonic = lambda: time.monotonic() + 7_200
        await node.retention.apply_retention()

        assert open_segments(tmp_path) == []
        assert node.retired.removed_files == 1
