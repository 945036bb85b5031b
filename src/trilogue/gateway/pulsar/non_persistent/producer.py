"""A producer of one connection for a non-persistent topic."""

from __future__ import annotations

from trilogue.broker.non_persistent.topics import NonPersistentTopic
from trilogue.gateway.pulsar.producer import Producer


class NonPersistentProducer(Producer):
    """A producer of a non-persistent topic."""

    topic: NonPersistentTopic

    async def enter(self, *, record: bool = True) -> None:
        """Become ready; `record`: with exclusive access, whose epoch is not durable."""
        if record:
            self.topic.take_epoch(self)
        if not self.is_current:
            self.leave()
            return
        self.ready = True
        self.succeed()

    def leave(self) -> None:
        """Release the name, and the topic if the producer had it exclusively."""
        if self.admitted:
            self.admitted = False
            self.topic.writers.leave(self)
