"""Members of a consumer group that speak as classic ones do, and groups that change their kind.

A service moves from one way of membership to the other one process at a time, and back, without a
stop (KIP-848, "Upgrade & Downgrade"):

    classic group ── the first KIP-848 member joins ──► consumer group with classic members
    consumer group ── the last KIP-848 member goes, classic ones are left ──► classic group

A classic member of a consumer group joins, syncs and beats as ever, but the broker assigns: its
generation is its epoch, nobody leads, and a join is answered at once with what it may have now. It
hears "join again" when the group has moved on, when it must give something up, and when what it
waits for has become free. Its share travels in the bytes that classic members expect; the broker
has them read and written (`Shares`), as it has what they say of themselves (`ReadWishes`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from trilogue.broker.any_group import CONSUMER_PROTOCOL, Wishes
from trilogue.broker.consumer_group import ConsumerGroup, ConsumerGroupSettings
from trilogue.broker.consumer_group_assignors import NOTHING, Parts, minus, together
from trilogue.broker.consumer_group_members import (
    Classic,
    Member,
    Phase,
    Wait,
    waits_for_others,
)
from trilogue.broker.consumer_group_topics import NOTHING_WANTED, Commons
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
from trilogue.broker.group import Group
from trilogue.broker.group_members import (
    Arrival,
    Joined,
    JoinRequest,
    Synced,
    check_session,
    new_member_id,
    protocols_size,
)
from trilogue.broker.groups import Groups
from trilogue.broker.names import TopicName
from trilogue.broker.promise import Promise

NamedParts = Mapping[TopicName, Iterable[int]]


class Shares(NamedTuple):
    """How a classic member's share is read from bytes, and written like its other bytes."""

    read: Callable[[bytes], NamedParts | None]
    write: Callable[[NamedParts, bytes], bytes]


UNREAD = Shares(lambda _: None, lambda _, __: b"")  # no door has said how


class MixedGroup(ConsumerGroup):
    """A consumer group that classic members may join."""

    def __init__(
        self,
        name: str,
        settings: ConsumerGroupSettings,
        groups: Groups,
        commons: Commons,
        *,
        shares: Shares = UNREAD,
    ) -> None:
        super().__init__(name, settings, commons)
        self._groups = groups
        self._shares = shares

    # -- what classic members ask (any_group.py)

    def join(self, request: JoinRequest) -> Promise[Joined]:
        """Become or stay a classic member; answered at once."""
        check_session(request, self._groups.settings)
        self.check_room(request.member_id)
        wishes = self._check_protocols(request)
        member_id = request.member_id
        if not member_id:
            member_id = new_member_id(request, self._groups.new_member_suffix())
            if request.member_id_required and request.instance_id is None:
                raise MemberIdRequired(member_id)
        member = self._joining(request, member_id)
        self._take_classic(member, request, wishes)
        self.refresh()
        self.step(member, self._by_id(dict(wishes.owned)))
        joined = Joined(member.epoch, CONSUMER_PROTOCOL, request.protocols[0][0], "", member_id)
        if all(each.classic is not None for each in self.members) and self._may_downgrade(0):
            settled = all(each.settled_at(self.epoch) for each in self.members)
            self._downgrade(None, member.epoch, rebalance=not settled)
        else:
            self.arm_session(member)
            self.wait(member, Wait.SYNC, member.rebalance_timeout_ms)
        return Promise.kept(joined)

    def sync(
        self,
        member_id: str,
        generation: int,
        instance_id: str | None = None,
        *,
        assignments: Mapping[str, bytes] | None = None,  # noqa: ARG002 - nobody leads
        protocol_type: str | None = None,
        protocol: str | None = None,
    ) -> Promise[Synced]:
        """Get the share of a classic member."""
        member, classic = self._classic(member_id, generation, instance_id)
        said = (protocol_type, CONSUMER_PROTOCOL), (protocol, classic.protocol)
        if any(a not in {None, b} for a, b in said):
            raise InconsistentProtocol(f"the member was told protocol {classic.protocol!r}")
        if self.epoch > member.epoch and member.phase is not Phase.GIVING_UP:
            self._ask_again(member)
        member.stop(Wait.SYNC)
        self.arm_session(member)
        share = self._shares.write(self._by_name(member.has), classic.metadata)
        return Promise.kept(Synced(CONSUMER_PROTOCOL, classic.protocol, share))

    def heartbeat(self, member_id: str, generation: int, instance_id: str | None = None) -> None:
        """Hear that a classic member lives."""
        member, _ = self._classic(member_id, generation, instance_id)
        self.arm_session(member)
        target = self.target.get(member.member_id, NOTHING)
        if (
            member.epoch < self.epoch
            or member.phase is Phase.GIVING_UP
            or (
                member.phase is Phase.AWAITING
                and not waits_for_others(member, target, self.members.owners)
            )
        ):
            self._ask_again(member)

    def leave(self, member_id: str, instance_id: str | None = None) -> None:
        """Let a member go, of either kind; a static one also by its instance alone."""
        if instance_id is None:
            self.fence(self.known(member_id))
            return
        member = self.members.static(instance_id)
        if member is None:
            raise UnknownMember(f"no member stands for instance {instance_id}")
        if member_id and member_id != member.member_id:
            raise FencedInstance("another process has taken over this instance")
        self.fence(member)

    # -- going

    def gone_empty(self) -> None:
        """Tell the registry."""
        self._groups.emptied(self)

    def fence(self, member: Member) -> None:
        """Let a member go; without it this may be a group of classic members only."""
        if self.members.find(member.member_id) is not member:
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

    # -- inside

    def _check_protocols(self, request: JoinRequest) -> Wishes:
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
        wishes = self._groups.read_wishes(request.protocols[0][1])
        if wishes is None:
            raise InconsistentProtocol("what the member says of itself cannot be read")
        self.wanted.check_room((wishes.topics, ""))
        return wishes

    def _joining(self, request: JoinRequest, member_id: str) -> Member:
        instance_id = request.instance_id
        if instance_id is None:
            return self.members.find(member_id) or self.take_in(Member(member_id))
        if request.member_id:
            return self.static(member_id, instance_id)
        former = self.members.static(instance_id)
        if former is None:
            return self.take_in(Member(member_id, instance_id))
        return self.replace(former, member_id)

    def _take_classic(self, member: Member, request: JoinRequest, wishes: Wishes) -> None:
        before = member.wants
        member.cancel_timers()
        member.classic = Classic(request.session_timeout_ms, request.protocols)
        member.rack = wishes.rack or member.rack
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.topics, member.pattern = self.wanted.share(wishes.topics), ""
        member.client_id, member.client_host = request.client_id, request.client_host
        self.rewant(before, member)

    def _classic(
        self, member_id: str, generation: int, instance_id: str | None
    ) -> tuple[Member, Classic]:
        if instance_id is None:
            member = self.known(member_id)
        else:
            member = self.static(member_id, instance_id)
        if member.classic is None:
            raise UnknownMember(f"member {member_id} does not speak as classic members do")
        if generation != member.epoch:
            raise IllegalGeneration(f"the member is at generation {member.epoch}")
        return member, member.classic

    def _ask_again(self, member: Member) -> None:
        if Wait.GIVE_UP not in member.waits:
            self.wait(member, Wait.GIVE_UP, member.rebalance_timeout_ms)
        raise RebalanceInProgress("the group has moved on: join again")

    def _by_id(self, parts: NamedParts) -> Parts:
        """Only partitions that exist: the numbers are what a member says."""
        found = {}
        for name, indexes in parts.items():
            topic = self.commons.topics.find(name)
            if topic is not None:
                here = frozenset(each for each in indexes if 0 <= each < len(topic.partitions))
                if here:
                    found[topic.topic_id] = here
        return found

    def _by_name(self, parts: Parts) -> NamedParts:
        names = {seen.topic_id: name for name, seen in self.wanted.view.items()}
        return {names[each]: sorted(parts[each]) for each in parts if each in names}

    # -- changing the kind

    def _may_downgrade(self, leaving: int) -> bool:
        size_max = self._groups.settings.size_max
        return self.settings.downgrade and len(self.members) - leaving <= size_max

    def _downgrade(self, leaving: Member | None, generation: int, *, rebalance: bool) -> None:
        """Let the classic members go on among themselves, with the shares that they are to have."""
        group = self._groups.classic(self.name)
        group.resume(generation, self._arrivals(leaving), rebalance=rebalance)
        self._groups.replace(self.name, group)
        self.stop_making()
        for member in list(self.members):
            self.members.remove(member)
            self.wanted.change(member.wants, NOTHING_WANTED)
        self.wanted.forget()
        self.weigh()

    def _arrivals(self, leaving: Member | None) -> Iterator[Arrival]:
        for member in self.members:
            if member is leaving:
                continue
            assert member.classic is not None
            share = self._by_name(self.target.get(member.member_id, NOTHING))
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
            yield Arrival(request, self._shares.write(share, member.classic.metadata))

    def adopt(self, group: Group) -> None:
        """Begin with the members of a classic group, with what its leader gave them.

        Where two were given the same partition, or it is not certain that they have it, the first
        one is taken to have it: all of them will be asked to join again anyhow.
        """
        protocol = group.protocol or group.members.vote()
        self.epoch = self.target_epoch = max(group.generation, 1)
        arrived: list[Member] = []
        taken: Parts = NOTHING
        for each in group.members:
            wishes = self._groups.read_wishes(each.metadata(protocol))
            share = self._shares.read(each.assignment) if each.assignment else {}
            if wishes is None or share is None:
                raise UnknownGroup(
                    f"group {group.name} cannot become a consumer group:"
                    " what its members say cannot be read"
                )
            has = minus(self._by_id(share), taken)
            taken = together(taken, has)
            arrived.append(
                Member(
                    each.member_id,
                    each.instance_id,
                    wishes.rack,
                    each.client_id,
                    each.client_host,
                    each.rebalance_timeout_ms,
                    wishes.topics,
                    classic=Classic(each.session_timeout_ms, each.protocols),
                    epoch=self.epoch,
                    previous_epoch=self.epoch,
                    has=has,
                )
            )
        for member in arrived:
            self.members.add(member)
            self.target[member.member_id] = member.has
            self.wanted.change(NOTHING_WANTED, member.wants)
            self.arm_session(member)
        self.weigh()
