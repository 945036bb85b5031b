"""A client with a fetch session, by hand."""

from __future__ import annotations

from collections.abc import Iterable

from tests.gateway.kafka.produce.test_produce import request as produce
from tests.gateway.kafka.rig import Rig, batch, versions
from trilogue.wire.kafka.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)

UNKNOWN_ID, WRONG_EPOCH, MIXED = 70, 71, 106
NAMED, BY_ID = 12, 13  # versions
SESSIONS = [each for each in versions(1) if each >= 7]


class Reader:
    """A client with a session, by hand."""

    def __init__(self, rig: Rig, topic: str = "t", version: int = NAMED) -> None:
        self.rig, self.topic, self.version = rig, topic, version
        self.peer = rig.peer()
        self.session_id, self.epoch = 0, 0
        self.topic_id = rig.gateway.topic(topic).topic_id

    def build_request(
        self,
        offsets: dict[int, int] | None = None,
        forget: Iterable[int] = (),
        *,
        partition_max_bytes: int = 1 << 20,
        **how: int,
    ) -> FetchRequest:
        """Request these partitions, and forget those."""
        named = {"topic": self.topic, "topic_id": self.topic_id}
        partitions = [
            FetchPartition(
                partition=index, fetch_offset=offset, partition_max_bytes=partition_max_bytes
            )
            for index, offset in (offsets or {}).items()
        ]
        forgotten = [ForgottenTopic(partitions=list(forget), **named)] if forget else []
        given = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 50 << 20, **how}
        return FetchRequest(
            session_id=how.get("session_id", self.session_id),
            session_epoch=how.get("session_epoch", self.epoch),
            topics=[FetchTopic(partitions=partitions, **named)] if partitions else [],
            forgotten_topics_data=forgotten,
            **{key: value for key, value in given.items() if not key.startswith("session")},
        )

    async def full(self, *offsets: int, **how: int) -> list[PartitionData]:
        """Fetch partitions 0, 1, ... and open a session."""
        requested = self.build_request(dict(enumerate(offsets)), session_epoch=0, **how)
        answer = await self.peer.request(requested, self.version)
        assert answer.error_code == 0
        self.session_id, self.epoch = answer.session_id, 1
        return reported(answer)

    async def request(
        self, offsets: dict[int, int] | None = None, forget: Iterable[int] = (), **how: int
    ) -> list[PartitionData]:
        """Fetch what is new."""
        answer = await self.peer.request(self.build_request(offsets, forget, **how), self.version)
        assert (answer.error_code, answer.session_id) == (0, self.session_id)
        self.epoch += 1
        return reported(answer)

    async def code(self, **how: int) -> tuple[int, int]:
        """Return the error of a whole response, and its session id."""
        answer = await self.peer.request(self.build_request(**how), self.version)
        return answer.error_code, answer.session_id


def reported(answer) -> list[PartitionData]:
    return [each for topic in answer.responses for each in topic.partitions]


def indexes(partitions: list[PartitionData]) -> list[int]:
    return [each.partition_index for each in partitions]


async def fill(rig: Rig, *values: str, index: int = 0, topic: str = "t") -> None:
    peer = rig.peer()
    for value in values:
        await peer.request(produce(topic, batch(value), index=index), 7)
    peer.transport.close()


def waiting(rig: Rig, topic: str = "t") -> int:
    return sum(len(each.log._appender.watchers) for each in rig.gateway.topic(topic).partitions)
