"""A follower of a few lines: it copies a partition from the internal listener, byte by byte."""

from __future__ import annotations

from tests.conformance.asking import Asker
from tests.conformance.clients import Deadline
from tests.conformance.raw import Batch, walk
from trilogue.wire.kafka.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
    ReplicaState,
)

REPLICA_STATE_SINCE, IDS_SINCE = 15, 13
FOLLOWER = 2


class Replica:
    """A copy of one partition; `log` is what a follower has appended."""

    def __init__(self, topic: str, topic_id: bytes, *, version: int = 17) -> None:
        self.topic, self.topic_id, self.version = topic, topic_id, version
        self.log = bytearray()
        self.offset = 0  # of the next batch
        self.epoch = -1  # of the last one

    @property
    def batches(self) -> list[Batch]:
        return list(walk(bytes(self.log)))

    def fetch(self, asker: Asker, *, max_bytes: int = 1 << 20, wait_ms: int = 0) -> PartitionData:
        """Fetch once, from the end of the copy on."""
        partition = FetchPartition(
            partition=0,
            fetch_offset=self.offset,
            last_fetched_epoch=self.epoch,
            partition_max_bytes=max_bytes,
        )
        topic = FetchTopic(topic=self.topic, topic_id=self.topic_id, partitions=[partition])
        request = FetchRequest(
            replica_id=FOLLOWER,
            replica_state=ReplicaState(replica_id=FOLLOWER),
            max_wait_ms=wait_ms,
            min_bytes=1,
            topics=[topic],
        )
        (answered,) = asker.request(request, self.version).responses
        (data,) = answered.partitions
        return data

    def append(self, data: PartitionData) -> bool:
        """Append what was fetched; False if it is nothing."""
        assert not data.error_code, data
        assert data.aborted_transactions is None
        records = bytes(data.records)
        for batch in walk(records):
            assert batch.base_offset >= self.offset
            self.offset, self.epoch = batch.next_offset, batch.leader_epoch
        self.log += records
        return bool(records)

    def copy(self, asker: Asker, *, max_bytes: int = 1 << 20) -> Replica:
        """Copy up to the end of the log."""
        deadline = Deadline("a copy")
        while self.append(self.fetch(asker, max_bytes=max_bytes)):
            deadline.check(self.offset)
        return self
