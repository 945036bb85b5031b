"""What the administration APIs of Pulsar and TubeMQ share: access checks, and changes in turn.

A change of a topic or a rule is decided on the present state. When another change of the same thing
was faster, it is decided again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from trilogue.broker.access.authorizer import Operation, Principal, Resource, ResourceKind
from trilogue.broker.access.client_access import ClientAccess
from trilogue.broker.broker import Broker
from trilogue.broker.errors import AccessDenied, ConcurrentChange
from trilogue.broker.metadata_change import MetadataChange
from trilogue.broker.names import TopicName
from trilogue.broker.promise import Promise
from trilogue.broker.topics.topic import Topic
from trilogue.gateway.dependencies import ProtocolGateway
from trilogue.gateway.steps import wait_until_settled

ATTEMPTS = 20  # to decide a change again, when others change the same thing at the same time
T = TypeVar("T")


class AuthorizedRequest:
    """One administrative request: its principal and the operation that it needs access for."""

    __slots__ = ()

    gateway: ProtocolGateway
    operation: Operation
    access: ClientAccess

    @property
    def principal(self) -> Principal:
        """The identity of the client."""
        return self.access.principal

    @property
    def broker(self) -> Broker:
        """The broker that is administered."""
        return self.gateway.broker

    def is_allowed(self, kind: ResourceKind, name: object) -> bool:
        """Return whether the principal may do the operation to this resource."""
        return self.access.is_allowed(self.operation, kind, str(name))

    def can_see(self, kind: ResourceKind, name: object) -> bool:
        """Return the same for lists, which leave out what the principal may not see."""
        return self.access.can_see(self.operation, kind, str(name))

    def check_access(self, kind: ResourceKind, name: object) -> None:
        """Check the same; raises AccessDenied."""
        if not self.is_allowed(kind, name):
            raise AccessDenied(self.operation, Resource(kind, str(name)))

    async def commit_change(self, decide: Callable[[], MetadataChange[T]]) -> T:
        """Commit what `decide` returns; raises ConcurrentChange after too many attempts."""
        for _ in range(ATTEMPTS):
            change = decide()
            try:
                await self.gateway.write_metadata(change)
            except ConcurrentChange:
                continue
            return change.done.result()
        raise ConcurrentChange("others change the same thing all the time")

    async def delete_topic(self, name: TopicName) -> None:
        """Delete a topic, once no other change of it is in flight."""
        cluster = self.broker.cluster
        while (pending := cluster.pending_change(name)) is not None:
            await wait_until_settled(pending)
        await self.gateway.write_metadata(cluster.plan_delete(name))

    async def find_unchanging(self, find_existing: Callable[[], Topic]) -> Topic:
        """Return the topic that `find_existing` returns, once no change of it is in flight."""
        topic = find_existing()
        while (pending := self.broker.cluster.pending_change(topic.name)) is not None:
            await wait_until_settled(pending)
            topic = find_existing()
        return topic

    async def alter_topic(
        self, find_existing: Callable[[], Topic], change: Callable[[dict[str, str]], object]
    ) -> Topic:
        """Change the stored settings of a topic; `change` edits them in place."""
        topic = await self.find_unchanging(find_existing)
        settings = dict(topic.settings)
        change(settings)
        if settings == topic.settings:
            return topic
        altered = self.broker.cluster.plan_alter(topic.name, settings)
        await self.gateway.write_metadata(altered)
        return altered.done.result()

    async def grow_topic(self, find_existing: Callable[[], Topic], count: int) -> None:
        """Add partitions up to this count, and subscribe the topic's subscriptions to them."""
        topic = await self.find_unchanging(find_existing)
        before = len(topic.partitions)
        if count > before:
            change = self.broker.cluster.plan_add_partitions(topic.name, count)
            await self.gateway.write_metadata(change)
            grown = change.done.result()
            await await_promise(self.broker.added_partitions.subscribe(grown, before))


async def await_promise(promise: Promise[T]) -> T:
    """Return the result of a promise, or raise its error."""
    await wait_until_settled(promise)
    return promise.result()
