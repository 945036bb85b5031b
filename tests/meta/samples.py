"""Rows to commit."""

from __future__ import annotations

from trilogue.log.segments.extents import Extent, Extents
from trilogue.log.segments.segment_info import SegmentInfo, segment_name
from trilogue.meta.operations import TopicRow


def topic(name: str, *partitions: int, epoch: int = 0, **changes: object) -> TopicRow:
    fields: dict[str, object] = {
        "tenant": "public",
        "namespace": "default",
        "name": name,
        "topic_id": name.encode(errors="replace").ljust(16, b"."),
        "partitions": partitions,
        "partitioned": True,
        "settings": {"retention.ms": "-1"},
        "created_ms": 1000,
        "epoch": epoch,
    }
    return TopicRow(**(fields | changes))  # type: ignore[arg-type]


def segment(segment_id: int, *partitions: int, **changes: object) -> SegmentInfo:
    fields: dict[str, object] = {
        "segment_id": segment_id,
        "level": 0,
        "name": segment_name(segment_id),
        "size": 1000,
        "node_id": 1,
        "node_epoch": 1,
        "created_ms": 5,
        "first_sequence": 1,
        "last_sequence": 2,
        "footer_position": 64,
        "footer_size": 100,
        "partitions": Extents.of(
            Extent(each, 0, 5, 64, 9, 1, 1, -1, 7, 3, 4) for each in partitions
        ),
    }
    return SegmentInfo(**(fields | changes))  # type: ignore[arg-type]
