"""The registry of Kafka groups of all kinds, by name: creation, replacement, removal.

Members are stored as facts (membership.py): after a restart they go on as if nothing had happened,
and have a session timeout from then on to show life. Groups without members are kept while there is
room, the one that has been empty longest goes first.

A group of one kind becomes one of the other by `replace`: an empty one when a member of the other
kind joins (here, for classic members), one with members as KIP-848 defines, by `MixedGroup`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping

from trilogue.broker.creators import CreatorCounts
from trilogue.broker.cursors.position_store import NAME_SIZE_MAX
from trilogue.broker.errors import (
    BrokerError,
    GroupMaxSize,
    GroupUnavailable,
    IllegalGeneration,
    InconsistentProtocol,
    InvalidGroupName,
    NotCoordinator,
    UnknownGroup,
    UnknownMember,
)
from trilogue.broker.groups.classic.group import ClassicGroup
from trilogue.broker.groups.classic.initial_delay import InitialDelays
from trilogue.broker.groups.classic.members import (
    GroupMemory,
    GroupSettings,
    JoinRequest,
    JoinResult,
    SyncResult,
    Timers,
)
from trilogue.broker.groups.classic.records import (
    ClassicGroupRow,
    decode_group,
    decode_member,
    encode_group,
    encode_member,
)
from trilogue.broker.groups.group import (
    CLASSIC,
    SHARE,
    STREAMS,
    DecodeSubscription,
    Group,
    no_subscription,
)
from trilogue.broker.groups.membership import GROUP, Membership, Rows
from trilogue.broker.groups.records import GroupRecords
from trilogue.broker.promise import Promise


class GroupRegistry:
    """The groups' front: every call names its group."""

    def __init__(
        self,
        settings: GroupSettings,
        timers: Timers,
        new_member_suffix: Callable[[], str],
        *,
        now_ms: Callable[[], int],
        decode_subscription: DecodeSubscription = no_subscription,
        has_positions: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self.settings = settings
        self.timers = timers
        self.new_member_suffix = new_member_suffix
        self.decode_subscription = decode_subscription
        self.records = GroupRecords(now_ms)
        self.membership = Membership()
        self.initial_delays = InitialDelays()
        self.memory = GroupMemory()
        self.has_positions = has_positions
        # Called with a classic group that has other members now.
        self.on_members: Callable[[ClassicGroup], None] = lambda _: None
        # Called with a group that now stands under a name, and the one before it.
        self.on_replaced: Callable[[Group, Group | None], None] = lambda _, __: None
        # Called with the name and the kind of a group without members that is no more.
        self.on_dropped: Callable[[str, str], None] = lambda _, __: None
        self._groups: dict[str, Group] = {}
        self._idle: OrderedDict[str, Group] = OrderedDict()
        self._creators = CreatorCounts()  # of the groups with members

    def __iter__(self) -> Iterator[Group]:
        """All groups, also empty ones."""
        return iter(self._groups.values())

    def __len__(self) -> int:
        return len(self._groups)

    def find_group(self, name: str) -> Group | None:
        """Return a group if it is known."""
        return self._groups.get(name)

    def is_free(self, name: str, type_: str) -> bool:
        """Whether a group of this kind may have the name: no group of a kind that stays has it.

        A share group keeps its name from the others, also without members; an empty streams group
        gives it up to a classic one, as an application may go back.
        """
        group, held = self._groups.get(name), self.find_type(name)
        if held in {None, type_}:
            return True
        is_empty = group is None or group.is_empty
        if type_ in {SHARE, STREAMS}:
            return held == CLASSIC and is_empty
        return held != SHARE and (held != STREAMS or (type_ == CLASSIC and is_empty))

    # -- which group stands under a name

    def classic(self, name: str) -> ClassicGroup:
        """Return a new classic group, not yet known here: `replace` makes it the group."""
        return ClassicGroup(
            name,
            self.settings,
            self.timers,
            self.new_member_suffix,
            self.on_emptied,
            decode_subscription=self.decode_subscription,
            initial_delays=self.initial_delays,
            on_assigned=self._store_members,
            on_departed=self._on_departed,
            memory=self.memory,
        )

    def replace(self, name: str, group: Group) -> None:
        """Let this group stand under the name, whether there was one or not; positions stay.

        A former group without members ends; one with members is dropped as it is, since who
        converts it has taken what it needs.
        InvalidGroupName; GroupUnavailable when a new name finds no room.
        """
        former, type_ = self._groups.get(name), self.find_type(name)
        if former is None:
            self._make_room(name)
            if type_ not in {None, group.type}:
                self.on_dropped(name, str(type_))
        elif former.is_empty:
            former.forget()
        if isinstance(former, ClassicGroup):
            former.members.release()
        self._groups[name] = group
        self.on_replaced(group, former)
        if group.is_empty:
            self._idle[name] = group
        else:
            self.on_occupied(group)

    def on_emptied(self, group: Group) -> None:
        """Hear from a group that its last member has gone."""
        self._idle[group.name] = group
        self._creators.remove(group.name)
        self.membership.forget(group.name)
        self.records.mark_empty(group.name, group.type, group.protocol_type)
        if isinstance(group, ClassicGroup):
            self.on_members(group)

    def on_occupied(self, group: Group, creator: str = "") -> None:
        """Hear that a group has a member, again or still, after a request of this principal."""
        self._idle.pop(group.name, None)
        self._creators.add(group.name, creator)
        self.records.mark_occupied(group.name, group.type, group.protocol_type)

    def note_occupied(self, group: Group, creator: str = "") -> None:
        """Note after a heartbeat that a group has members, if it has, and is still the one."""
        if not group.is_empty and self.find_group(group.name) is group:
            self.on_occupied(group, creator)

    def drop(self, name: str) -> None:
        """Let an empty group go, with what is remembered of it; positions are the caller's."""
        type_ = self.find_type(name) or CLASSIC
        group = self._groups.pop(name, None)
        self._idle.pop(name, None)
        self._creators.remove(name)
        self._forget(name, type_)
        if group is not None:
            group.forget()

    def release(self, gives_name: Callable[[str], bool]) -> None:
        """End the groups that another node is to coordinate, with what is stored of them as it is.

        Requests that wait in them get NotCoordinator.
        """
        for name in list(filter(gives_name, self._groups)):
            self._idle.pop(name, None)
            self._creators.remove(name)
            self._groups.pop(name).release(NotCoordinator(f"another node coordinates {name}"))

    def find_type(self, name: str) -> str | None:
        """Return the kind of a group that is known or remembered."""
        group, record = self._groups.get(name), self.records.get(name)
        if group is not None:
            return group.type
        return None if record is None else record.type

    def _forget(self, name: str, type_: str) -> None:
        """Remember nothing of a group without members."""
        self.records.forget(name)
        self.membership.forget(name)
        self.on_dropped(name, type_)

    # -- requests of classic members, and of others for them

    def join(self, request: JoinRequest) -> Promise[JoinResult]:
        """Become or stay a member of a group, which is made when it is new."""
        try:
            if not self.is_free(request.group, CLASSIC):
                raise InconsistentProtocol(f"group {request.group} is of another kind")
            group = self._groups.get(request.group)
            self.check_share(group, request.creator)
            if group is None or (group.type != CLASSIC and group.is_empty):
                group = self.classic(request.group)
                self.replace(request.group, group)
            promise = group.join(request)
        except BrokerError as error:
            return Promise.rejected(error)
        if not group.is_empty:
            self.on_occupied(group, request.creator)
        return self.membership.when_durable(promise)

    def sync(
        self,
        name: str,
        member_id: str,
        generation: int,
        instance_id: str | None = None,
        *,
        assignments: Mapping[str, bytes] | None = None,
        protocol_type: str | None = None,
        protocol: str | None = None,
    ) -> Promise[SyncResult]:
        """Bring or get the assignment."""
        try:
            promise = self._group(name).sync(
                member_id,
                generation,
                instance_id,
                assignments=assignments,
                protocol_type=protocol_type,
                protocol=protocol,
            )
            return self.membership.when_durable(promise)
        except BrokerError as error:
            return Promise.rejected(error)

    def heartbeat(
        self, name: str, member_id: str, generation: int, instance_id: str | None = None
    ) -> None:
        """Show life; raises what the member must know."""
        self._group(name).heartbeat(member_id, generation, instance_id)

    def leave(self, name: str, member_id: str, instance_id: str | None = None) -> None:
        """Remove a member; raises UnknownMember. Of several each is a call of its own."""
        self._group(name).leave(member_id, instance_id)

    def check_commit(
        self, name: str, member_id: str, generation: int, instance_id: str | None = None
    ) -> None:
        """Refuse a commit that its group would not allow; a name without a group is free.

        Who speaks as a member of a group that has none, as after a restart, is no member; where
        it never had members, the generation is wrong. Either makes the client join again.
        """
        group = self._groups.get(name)
        if group is not None:
            group.check_commit(member_id, generation, instance_id)
        elif not self.is_free(name, CLASSIC):
            raise UnknownGroup(f"group {name} is a share group, which has no committed offsets")
        elif generation >= 0:
            if self.records.get(name) is not None or self.has_positions(name):
                raise UnknownMember("the group has no members")
            raise IllegalGeneration("the group has no generation")

    def check_fetch(self, name: str, member_id: str | None, epoch: int) -> None:
        """Refuse a client that is no member (any more) of a group with epochs."""
        group = self._groups.get(name)
        if group is not None:
            group.check_fetch(member_id, epoch)

    # -- members through restarts

    def restore_classic(self, name: str, rows: Rows) -> None:
        """Let a classic group go on with the members that are stored; CorruptLog.

        Where some are missing, because they left or a crash took their rows, it rebalances.
        """
        row = decode_group(rows[GROUP])
        members = [
            decode_member(name, row.protocol_type, member_id, data)
            for member_id, data in rows.items()
            if member_id != GROUP
        ]
        members.sort(key=lambda member: member.request.member_id != row.leader_id)
        group = self.classic(name)
        group.resume(
            row.generation,
            members,
            rebalance=len(members) != row.member_count,
            protocol_type=row.protocol_type,
            protocol=row.protocol,
        )
        self.replace(name, group)

    def _store_members(self, group: ClassicGroup) -> None:
        members, leader = group.members, group.members.leader
        row = ClassicGroupRow(
            group.generation,
            len(members),
            group.protocol_type,
            group.protocol,
            "" if leader is None else leader.member_id,
        )
        rows = {member.member_id: encode_member(member) for member in members}
        self.membership.store_all(group.name, {**rows, GROUP: encode_group(row)})
        self.on_members(group)

    def _on_departed(self, group: ClassicGroup, member_id: str) -> None:
        self.membership.store(group.name, {member_id: None})

    def _group(self, name: str) -> Group:
        if not name:
            raise InvalidGroupName("a group needs a name")
        group = self._groups.get(name)
        if group is None:
            raise UnknownMember("the group has no members")
        return group

    def check_share(self, group: Group | None, creator: str) -> None:
        """Raise GroupMaxSize unless a principal ("": no name) may have one more group with members.

        `group` is the one that it joins, None a new one. Empty groups give way, so none counts.
        """
        if not creator or (group is not None and not group.is_empty):
            return
        free = self.settings.groups_max - (len(self._groups) - len(self._idle))
        if not self._creators.has_room(creator, free):
            count = self._creators.count(creator)
            raise GroupMaxSize(f"{creator} has {count} groups with members, {free} are free")

    def _make_room(self, name: str) -> None:
        if not name or len(name.encode()) > NAME_SIZE_MAX:
            raise InvalidGroupName(f"a group name has 1 to {NAME_SIZE_MAX} bytes")
        if len(self._groups) >= self.settings.groups_max:
            if not self._idle:
                raise GroupUnavailable(f"there are {self.settings.groups_max} groups already")
            forgotten, group = self._idle.popitem(last=False)
            group.forget()
            del self._groups[forgotten]
            if not self.has_positions(forgotten):
                # or invented names would fill the memory
                self._forget(forgotten, group.type)
