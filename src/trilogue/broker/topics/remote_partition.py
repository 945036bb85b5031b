"""A partition that another node owns: its settings are known here, its messages are not."""

from __future__ import annotations

from typing import Any, NoReturn

from trilogue.broker.errors import NotOwner
from trilogue.broker.producers.idempotence import PartitionProducers
from trilogue.broker.settings.topic_settings import TopicSettings
from trilogue.broker.topics.ownership import Ownership
from trilogue.broker.topics.partition import Partition
from trilogue.broker.topics.policies import DEFAULT_POLICIES


class RemotePartition(Partition):
    """Has no log: a use of it raises NotOwner, which each protocol has an answer for."""

    __slots__ = ("_id", "_ownership")

    is_remote = True

    def __init__(
        self,
        partition_id: int,
        ownership: Ownership,
        producers: PartitionProducers,
        settings: TopicSettings,
    ) -> None:
        self._id = partition_id
        self._ownership = ownership
        self.producers = producers
        self.bytes_out = 0
        self._deleted = False
        self._terminated = False
        self._internal = False
        self._moved = None
        self._policies = DEFAULT_POLICIES
        self.rates = None
        self.apply_settings(settings)

    def __getattr__(self, name: str) -> NoReturn:
        """Refuse what only the owner has: the slots `log` and `plain` are never set."""
        if name in {"log", "plain"}:
            raise self.refusal()
        raise AttributeError(name)

    def apply_settings(self, settings: TopicSettings) -> None:
        """Apply changed settings of the topic."""
        self.settings = settings
        self.message_size_max = settings.message_size_max
        self.stamps = settings.log_append_time
        self.needs_validation = False
        self.acks_from_memory = settings.acks_from_memory

    def _update_plain_size(self) -> None:
        pass

    @property
    def partition_id(self) -> int:
        """The permanent id of this partition."""
        return self._id

    @property
    def owner_epoch(self) -> int:
        """The epoch of the present owner."""
        return self._ownership.partition_epoch(self._id)

    def check_epoch(self, epoch: int) -> None:  # noqa: ARG002 - whatever it is
        """Refuse every client: it has to go to the owner."""
        raise self.refusal()

    def append(self, *_: Any, **__: Any) -> NoReturn:
        """Raise NotOwner."""
        raise self.refusal()

    append_sent = append_marker = append_entry = append

    @property
    def formats(self) -> int:
        """No formats: nothing of it is in memory."""
        return 0

    def refusal(self) -> NotOwner:
        """Return which node owns it."""
        owner = self._ownership.partition_owner(self._id)
        return NotOwner(f"node {owner} is the owner of the partition", owner)
