"""Members of a consumer group that speak as classic ones do, and groups that change their kind.

A service moves from one way of membership to the other one process at a time, and back, without a
stop (KIP-848, "Upgrade & Downgrade"):

    classic group ── the first KIP-848 member joins ──► consumer group with classic members
    consumer group ── the last KIP-848 member goes, classic ones are left ──► classic group

A classic member of a consumer group joins, syncs and beats as ever, but the broker assigns: its
generation is its epoch, there is no leader, and a join is answered at once with what it has. It
hears "join again" when the group has moved on, when it must give something up, and when what it
waits for has become free. Its share travels in the bytes that classic members expect; the broker
has codecs for them (`AssignmentCodec`), as for subscriptions (`DecodeSubscription`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from trilogue.broker.errors import (
    FencedInstance,
    GroupMaxSize,
    IllegalGeneration,
    InconsistentProtocol,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownGroup,
    UnknownMember,
)
from trilogue.broker.groups.classic.group import ClassicGroup
from trilogue.broker.groups.classic.members import (
    JoinRequest,
    JoinResult,
    MemberHandover,
    SyncResult,
    check_session,
    new_member_id,
    protocols_size,
)
from trilogue.broker.groups.consumer.assignors import (
    NO_PARTITIONS,
    PartitionIndexes,
)
from trilogue.broker.groups.consumer.context import ConsumerGroupContext
from trilogue.broker.groups.consumer.group import ConsumerGroup, ConsumerGroupSettings
from trilogue.broker.groups.consumer.members import ClassicMemberMetadata, ConsumerGroupMember
from trilogue.broker.groups.consumer.records import encode_group, encode_member
from trilogue.broker.groups.consumer.subscribed_topics import NO_TOPICS
from trilogue.broker.groups.group import CONSUMER_PROTOCOL, MemberSubscription
from trilogue.broker.groups.membership import GROUP
from trilogue.broker.groups.partition_sets import subtract, unite
from trilogue.broker.groups.reconciliation import MemberState, MemberTimer, awaits_release
from trilogue.broker.groups.registry import GroupRegistry
from trilogue.broker.names import TopicName
from trilogue.broker.promise import Promise

PartitionsByTopic = Mapping[TopicName, Iterable[int]]


class AssignmentCodec(NamedTuple):
    """How a classic member's share is read from bytes, and written like its other bytes."""

    decode: Callable[[bytes], PartitionsByTopic | None]
    encode: Callable[[PartitionsByTopic, bytes], bytes]


NO_CODEC = AssignmentCodec(lambda _: None, lambda _, __: b"")  # without a gateway


class MixedGroup(ConsumerGroup):
    """A consumer group that classic members may join."""

    def __init__(
        self,
        name: str,
        settings: ConsumerGroupSettings,
        groups: GroupRegistry,
        context: ConsumerGroupContext,
        *,
        assignment_codec: AssignmentCodec = NO_CODEC,
    ) -> None:
        super().__init__(name, settings, context)
        self._groups = groups
        self._assignment_codec = assignment_codec

    # -- requests of classic members (broker/groups/group.py)

    def join(self, request: JoinRequest) -> Promise[JoinResult]:
        """Become or stay a classic member; answered at once."""
        check_session(request, self._groups.settings)
        self.check_room(request.member_id)
        subscription = self._check_protocols(request)
        member_id = request.member_id
        if not member_id:
            member_id = new_member_id(request, self._groups.new_member_suffix())
            if request.member_id_required and request.instance_id is None:
                raise MemberIdRequired(member_id)
        member = self._joining(request, member_id)
        self._take_classic(member, request, subscription)
        self.refresh()
        self.step(member, self._by_id(dict(subscription.owned)))
        self.store_member(member)
        joined = JoinResult(member.epoch, CONSUMER_PROTOCOL, request.protocols[0][0], "", member_id)
        if all(each.classic is not None for each in self.members) and self._may_downgrade(0):
            settled = all(each.is_stable_at(self.epoch) for each in self.members)
            self._downgrade(None, member.epoch, rebalance=not settled)
        else:
            self.start_session_timer(member)
            self.wait(member, MemberTimer.SYNC, member.rebalance_timeout_ms)
        return Promise.resolved(joined)

    def sync(
        self,
        member_id: str,
        generation: int,
        instance_id: str | None = None,
        *,
        assignments: Mapping[str, bytes] | None = None,  # noqa: ARG002 - there is no leader
        protocol_type: str | None = None,
        protocol: str | None = None,
    ) -> Promise[SyncResult]:
        """Get the share of a classic member."""
        member, classic = self._classic(member_id, generation, instance_id)
        pairs = (protocol_type, CONSUMER_PROTOCOL), (protocol, classic.protocol)
        if any(a not in {None, b} for a, b in pairs):
            raise InconsistentProtocol(f"the member was assigned protocol {classic.protocol!r}")
        if self.epoch > member.epoch and member.state is not MemberState.UNREVOKED:
            self._request_rejoin(member)
        member.stop(MemberTimer.SYNC)
        self.start_session_timer(member)
        share = self._assignment_codec.encode(self._by_name(member.assigned), classic.metadata)
        return Promise.resolved(SyncResult(CONSUMER_PROTOCOL, classic.protocol, share))

    def heartbeat(self, member_id: str, generation: int, instance_id: str | None = None) -> None:
        """Hear that a classic member lives."""
        member, _ = self._classic(member_id, generation, instance_id)
        self.start_session_timer(member)
        target = self.target.get(member.member_id, NO_PARTITIONS)
        if (
            member.epoch < self.epoch
            or member.state is MemberState.UNREVOKED
            or (
                member.state is MemberState.UNRELEASED
                and not awaits_release(member, target, self.members.owners)
            )
        ):
            self._request_rejoin(member)

    def leave(self, member_id: str, instance_id: str | None = None) -> None:
        """Let a member go, of either kind; a static one also by its instance alone."""
        if instance_id is None:
            self.fence(self.require_member(member_id))
            return
        member = self.members.static(instance_id)
        if member is None:
            raise UnknownMember(f"no member stands for instance {instance_id}")
        if member_id and member_id != member.member_id:
            raise FencedInstance("another process has taken over this instance")
        self.fence(member)

    # -- going

    def on_empty(self) -> None:
        """Notify the registry."""
        self._groups.on_emptied(self)

    def fence(self, member: ConsumerGroupMember) -> None:
        """Let a member go; without it this may be a group of classic members only."""
        if self.members.find_member(member.member_id) is not member:
            return
        others = [each for each in self.members if each is not member]
        if (
            member.classic is None
            and others
            and all(each.classic is not None for each in others)
            and self._may_downgrade(1)
        ):
            self._downgrade(member, max(each.epoch for each in others), rebalance=True)
        else:
            self.drop(member)

    # -- members through restarts

    def store_member(self, member: ConsumerGroupMember) -> None:
        """Store a member that has changed, and the group's epoch."""
        rows = {GROUP: encode_group(self.epoch)}
        fields = member.stored_fields
        if fields != member.stored:
            member.stored = fields
            rows[member.member_id] = encode_member(member)
        self._groups.membership.store(self.name, rows)

    def on_removed(self, member: ConsumerGroupMember) -> None:
        """Remove the row of a member."""
        rows = {member.member_id: None, GROUP: encode_group(self.epoch)}
        self._groups.membership.store(self.name, rows)

    # -- inside

    def _check_protocols(self, request: JoinRequest) -> MemberSubscription:
        size_max = self._groups.settings.member_bytes_max
        if protocols_size(request.protocols) > size_max:
            raise GroupMaxSize("the metadata of the member is too large")
        names = {name for name, _ in request.protocols}
        common = [
            {name for name, _ in each.classic.protocols}
            for each in self.members
            if each.classic is not None and each.member_id != request.member_id
        ]
        if request.protocol_type != CONSUMER_PROTOCOL or not names.intersection(*common):
            raise InconsistentProtocol("no protocol is common to all classic members")
        subscription = self._groups.decode_subscription(request.protocols[0][1])
        if subscription is None:
            raise InconsistentProtocol("the member's metadata cannot be read")
        self.subscribed.check_room((subscription.topics, ""))
        return subscription

    def _joining(self, request: JoinRequest, member_id: str) -> ConsumerGroupMember:
        instance_id = request.instance_id
        if instance_id is None:
            return self.members.find_member(member_id) or self.add_member(
                ConsumerGroupMember(member_id)
            )
        if request.member_id:
            return self.static(member_id, instance_id)
        former = self.members.static(instance_id)
        if former is None:
            return self.add_member(ConsumerGroupMember(member_id, instance_id))
        return self.replace(former, member_id)

    def _take_classic(
        self, member: ConsumerGroupMember, request: JoinRequest, subscription: MemberSubscription
    ) -> None:
        before = member.subscription
        member.cancel_timers()
        member.classic = ClassicMemberMetadata(request.session_timeout_ms, request.protocols)
        member.rack = subscription.rack or member.rack
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.topics, member.pattern = self.subscribed.share(subscription.topics), ""
        member.client_id, member.client_host = request.client_id, request.client_host
        self.change_subscription(before, member)

    def _classic(
        self, member_id: str, generation: int, instance_id: str | None
    ) -> tuple[ConsumerGroupMember, ClassicMemberMetadata]:
        if instance_id is None:
            member = self.require_member(member_id)
        else:
            member = self.static(member_id, instance_id)
        if member.classic is None:
            raise UnknownMember(f"member {member_id} does not speak as classic members do")
        if generation != member.epoch:
            raise IllegalGeneration(f"the member is at generation {member.epoch}")
        return member, member.classic

    def _request_rejoin(self, member: ConsumerGroupMember) -> None:
        if MemberTimer.REBALANCE not in member.waits:
            self.wait(member, MemberTimer.REBALANCE, member.rebalance_timeout_ms)
        raise RebalanceInProgress("the group has moved on: join again")

    def _by_id(self, parts: PartitionsByTopic) -> PartitionIndexes:
        """Return the partitions that exist: the numbers come from a client."""
        found = {}
        for name, indexes in parts.items():
            topic = self.context.topics.find_topic(name)
            if topic is not None:
                here = frozenset(each for each in indexes if 0 <= each < len(topic.partitions))
                if here:
                    found[topic.topic_id] = here
        return found

    def _by_name(self, parts: PartitionIndexes) -> PartitionsByTopic:
        names = {seen.topic_id: name for name, seen in self.subscribed.view.items()}
        return {names[each]: sorted(parts[each]) for each in parts if each in names}

    # -- changing the kind

    def _may_downgrade(self, leaving: int) -> bool:
        size_max = self._groups.settings.size_max
        return self.settings.downgrade and len(self.members) - leaving <= size_max

    def _downgrade(
        self, leaving: ConsumerGroupMember | None, generation: int, *, rebalance: bool
    ) -> None:
        """Let the classic members go on among themselves, with the shares that they are to have."""
        group = self._groups.classic(self.name)
        group.resume(generation, self._arrivals(leaving), rebalance=rebalance)
        self._groups.replace(self.name, group)
        self.stop_computing()
        for member in list(self.members):
            self.members.remove(member)
            self.subscribed.change(member.subscription, NO_TOPICS)
        self.subscribed.forget()
        self.report_size()

    def _arrivals(self, leaving: ConsumerGroupMember | None) -> Iterator[MemberHandover]:
        for member in self.members:
            if member is leaving:
                continue
            assert member.classic is not None
            share = self._by_name(self.target.get(member.member_id, NO_PARTITIONS))
            request = JoinRequest(
                self.name,
                member.member_id,
                CONSUMER_PROTOCOL,
                member.classic.protocols,
                member.classic.session_timeout_ms,
                member.rebalance_timeout_ms,
                member.instance_id,
                member.client_id,
                member.client_host,
            )
            yield MemberHandover(
                request, self._assignment_codec.encode(share, member.classic.metadata)
            )

    def adopt(self, group: ClassicGroup) -> None:
        """Begin with the members of a classic group, with what its leader gave them.

        Where two were given the same partition, or it is not certain that they have it, the first
        one is taken to have it: all of them will have to join again.
        """
        protocol = group.protocol or group.members.vote()
        self.epoch = self.target_epoch = max(group.generation, 1)
        arrived: list[ConsumerGroupMember] = []
        taken: PartitionIndexes = NO_PARTITIONS
        for each in group.members:
            subscription = self._groups.decode_subscription(each.metadata(protocol))
            share = self._assignment_codec.decode(each.assignment) if each.assignment else {}
            if subscription is None or share is None:
                raise UnknownGroup(
                    f"group {group.name} cannot become a consumer group:"
                    " the metadata of a member cannot be read"
                )
            assigned = subtract(self._by_id(share), taken)
            taken = unite(taken, assigned)
            arrived.append(
                ConsumerGroupMember(
                    each.member_id,
                    instance_id=each.instance_id,
                    rack=subscription.rack,
                    client_id=each.client_id,
                    client_host=each.client_host,
                    rebalance_timeout_ms=each.rebalance_timeout_ms,
                    topics=subscription.topics,
                    classic=ClassicMemberMetadata(each.session_timeout_ms, each.protocols),
                    epoch=self.epoch,
                    previous_epoch=self.epoch,
                    assigned=assigned,
                )
            )
        for member in arrived:
            self.members.add(member)
            self.target[member.member_id] = member.assigned
            self.subscribed.change(NO_TOPICS, member.subscription)
            self.start_session_timer(member)
        self.report_size()
        rows = {member.member_id: encode_member(member) for member in arrived}
        self._groups.membership.store_all(self.name, {**rows, GROUP: encode_group(self.epoch)})
