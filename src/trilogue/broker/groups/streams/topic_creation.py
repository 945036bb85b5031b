"""Which internal topics are being created, and why the last attempts failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from trilogue.broker.errors import TopicExists
from trilogue.broker.groups.streams.topology import InternalTopic
from trilogue.broker.names import TopicName, format_kafka

ERRORS_MAX: Final = 1_000  # topics whose errors are kept


class InternalTopicCreation:
    """The creations of all streams groups of a node."""

    def __init__(self) -> None:
        self._pending: set[TopicName] = set()
        self._errors: dict[TopicName, str] = {}

    def is_pending(self, name: TopicName) -> bool:
        """Whether a topic is being created."""
        return name in self._pending

    def begin(self, name: TopicName) -> None:
        """Note that a topic is being created."""
        self._pending.add(name)

    def finish(self, name: TopicName, error: BaseException | None) -> None:
        """Note the outcome."""
        self._pending.discard(name)
        self._errors.pop(name, None)
        if error is None or isinstance(error, TopicExists):
            return
        if len(self._errors) >= ERRORS_MAX:
            del self._errors[next(iter(self._errors))]
        self._errors[name] = str(error)

    def errors(self, topics: Sequence[InternalTopic]) -> list[str]:
        """Return the names of these topics whose last creation failed, each with its error."""
        return [
            f"{format_kafka(each.name)} ({self._errors[each.name]})"
            for each in topics
            if each.name in self._errors
        ]
