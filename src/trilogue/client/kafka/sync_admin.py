"""Administration without asyncio: the same names, answers and errors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from trilogue.client.kafka import admin
from trilogue.client.kafka.admin.configs import Changes
from trilogue.client.kafka.admin.model import (
    SERVERS_DEFAULT,
    ClusterDescription,
    CommittedBatch,
    CreatedTopic,
    GroupDescription,
    GroupListing,
    GroupOffset,
    LogDir,
    NewTopic,
    Resource,
    Setting,
    TopicDescription,
    TopicListing,
    TransactionDescription,
    TransactionListing,
)
from trilogue.client.kafka.errors import KafkaError
from trilogue.client.kafka.model import (
    READ_UNCOMMITTED,
    OffsetAt,
    Partition,
    PreparedTransaction,
)
from trilogue.client.threads import LoopThread

Pairs = Iterable[tuple[str, int]]


class Admin:
    """All administrative requests; each waits for its answer."""

    def __init__(self, loop: LoopThread, inner: admin.Admin) -> None:
        self._loop = loop
        self._inner = inner

    def list_topics(self, *, internal: bool = False) -> list[TopicListing]:
        """All topics by name."""
        return self._loop.run(self._inner.list_topics(internal=internal))

    def describe_topics(
        self, names: Iterable[str] | None = None, *, operations: bool = False
    ) -> dict[str, TopicDescription | KafkaError]:
        """These topics, or all, and their partitions."""
        return self._loop.run(self._inner.describe_topics(names, operations=operations))

    def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False
    ) -> dict[str, CreatedTopic | KafkaError]:
        """Make topics."""
        return self._loop.run(self._inner.create_topics(topics, validate_only=validate_only))

    def create_topic(
        self,
        name: str,
        partitions: int = SERVERS_DEFAULT,
        settings: Mapping[str, str] | None = None,
    ) -> bool:
        """Make a topic and wait until it can be used; False when it was there already."""
        return self._loop.run(self._inner.create_topic(name, partitions, settings))

    def delete_topics(self, names: Iterable[str]) -> dict[str, KafkaError | None]:
        """Remove topics and what they hold."""
        return self._loop.run(self._inner.delete_topics(names))

    def delete_topic(self, name: str) -> bool:
        """Remove a topic; False when there was none."""
        return self._loop.run(self._inner.delete_topic(name))

    def create_partitions(
        self, totals: Mapping[str, int], *, validate_only: bool = False
    ) -> dict[str, KafkaError | None]:
        """Let topics have so many partitions in all."""
        return self._loop.run(self._inner.create_partitions(totals, validate_only=validate_only))

    def describe_configs(
        self,
        resources: Iterable[Resource],
        *,
        names: Iterable[str] | None = None,
        synonyms: bool = False,
        documentation: bool = False,
    ) -> dict[Resource, dict[str, Setting] | KafkaError]:
        """The settings of resources."""
        return self._loop.run(
            self._inner.describe_configs(
                resources, names=names, synonyms=synonyms, documentation=documentation
            )
        )

    def alter_configs(
        self, changes: Mapping[Resource, Changes], *, validate_only: bool = False
    ) -> dict[Resource, KafkaError | None]:
        """Change some settings and leave the others."""
        return self._loop.run(self._inner.alter_configs(changes, validate_only=validate_only))

    def replace_configs(
        self,
        settings: Mapping[Resource, Mapping[str, str | None]],
        *,
        validate_only: bool = False,
    ) -> dict[Resource, KafkaError | None]:
        """Let resources have these settings and no others."""
        return self._loop.run(self._inner.replace_configs(settings, validate_only=validate_only))

    def can_alter_some(self) -> bool:
        """Whether the server can change one setting and leave the others."""
        return self._loop.run(self._inner.can_alter_some())

    def list_groups(
        self, *, states: Iterable[str] = (), types: Iterable[str] = ()
    ) -> list[GroupListing]:
        """All groups, or those in these states and of these types."""
        return self._loop.run(self._inner.list_groups(states=states, types=types))

    def describe_groups(
        self, names: Iterable[str], *, operations: bool = False
    ) -> dict[str, GroupDescription | KafkaError]:
        """State and members of groups."""
        return self._loop.run(self._inner.describe_groups(names, operations=operations))

    def delete_groups(self, names: Iterable[str]) -> dict[str, KafkaError | None]:
        """Remove groups without members, and their positions."""
        return self._loop.run(self._inner.delete_groups(names))

    def group_offsets(
        self, group: str, partitions: Pairs | None = None, *, stable: bool = False
    ) -> dict[Partition, GroupOffset | KafkaError]:
        """Where a group is."""
        return self._loop.run(self._inner.group_offsets(group, partitions, stable=stable))

    def alter_group_offsets(
        self, group: str, offsets: Mapping[tuple[str, int], int | GroupOffset]
    ) -> dict[Partition, KafkaError | None]:
        """Move a group without members."""
        return self._loop.run(self._inner.alter_group_offsets(group, offsets))

    def delete_group_offsets(
        self, group: str, partitions: Pairs
    ) -> dict[Partition, KafkaError | None]:
        """Forget where a group is."""
        return self._loop.run(self._inner.delete_group_offsets(group, partitions))

    def list_offsets(
        self, wanted: Mapping[tuple[str, int], int], *, isolation: int = READ_UNCOMMITTED
    ) -> dict[Partition, OffsetAt | KafkaError]:
        """Offsets by time, and at the ends."""
        return self._loop.run(self._inner.list_offsets(wanted, isolation=isolation))

    def delete_records(
        self, before: Mapping[tuple[str, int], int]
    ) -> dict[Partition, int | KafkaError]:
        """Drop what is before an offset; the first that is left."""
        return self._loop.run(self._inner.delete_records(before))

    def describe_cluster(self, *, operations: bool = False) -> ClusterDescription:
        """The cluster's id, its controller and its nodes."""
        return self._loop.run(self._inner.describe_cluster(operations=operations))

    def api_versions(self) -> dict[int, tuple[int, int]]:
        """What some node speaks."""
        return self._loop.run(self._inner.api_versions())

    def log_dirs(
        self, partitions: Pairs | None = None, nodes: Iterable[int] | None = None
    ) -> dict[int, list[LogDir | KafkaError]]:
        """What partitions take on the disks of nodes."""
        return self._loop.run(self._inner.log_dirs(partitions, nodes))

    def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        pattern: str | None = None,
    ) -> list[TransactionListing]:
        """All transactional ids, or those in these states, with these producers and names."""
        work = self._inner.list_transactions(
            states=states, producer_ids=producer_ids, pattern=pattern
        )
        return self._loop.run(work)

    def describe_transactions(
        self, names: Iterable[str]
    ) -> dict[str, TransactionDescription | KafkaError]:
        """State, producer and partitions of transactional ids."""
        return self._loop.run(self._inner.describe_transactions(names))

    def abort_transactions(self, names: Iterable[str]) -> dict[str, KafkaError | None]:
        """Abort the ongoing transactions of ids."""
        return self._loop.run(self._inner.abort_transactions(names))

    def end_transaction(self, prepared: PreparedTransaction, *, commit: bool) -> None:
        """Commit or abort a transaction that its producer has prepared."""
        self._loop.run(self._inner.end_transaction(prepared, commit=commit))

    def commit_transactions(
        self, prepared: Iterable[PreparedTransaction], *, application_id: str, batch_id: int
    ) -> CommittedBatch:
        """Commit several prepared transactions in one decision, as the next batch of a program."""
        work = self._inner.commit_transactions(
            prepared, application_id=application_id, batch_id=batch_id
        )
        return self._loop.run(work)

    def last_batch(self, application_id: str) -> CommittedBatch | None:
        """The last batch that an application has committed."""
        return self._loop.run(self._inner.last_batch(application_id))
