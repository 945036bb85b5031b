"""The members of a group: by id, static members by instance id, ids handed out and not yet used.

It knows no states and sends no responses; `group.py` decides. Here are finding and fencing members,
who leads, which protocol all of them have in common and most of them like best, and the bounds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple
from typing import Protocol as Port

import msgspec

from trilogue.broker.errors import (
    FencedInstance,
    GroupMaxSize,
    InconsistentProtocol,
    InvalidSessionTimeout,
    UnknownMember,
)
from trilogue.broker.promise import Promise

CLIENT_ID_KEPT = 255  # characters of a client id that go into a member id
PROTOCOL_OVERHEAD = 64  # bytes that a listed protocol counts for besides its name and metadata


class TimerHandle(Port):
    """A call to come that can be called off."""

    def cancel(self) -> None:
        """Call it off; harmless when it has run."""


class Timers(Port):
    """What the broker needs of a clock; an event loop is one."""

    def call_later(self, delay: float, callback: Callable[[], object], /) -> TimerHandle:
        """Run the callback once, after so many seconds."""


class ResettableTimer:
    """At most one pending call: setting it again cancels the one before."""

    def __init__(self, timers: Timers, callback: Callable[[], object]) -> None:
        self._timers = timers
        self._callback = callback
        self._handle: TimerHandle | None = None

    def set(self, delay_ms: int) -> None:
        """Call back after so long, and at no other time."""
        self.stop()
        self._handle = self._timers.call_later(delay_ms / 1_000, self._ring)

    def stop(self) -> None:
        """Call it off, if it is set."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _ring(self) -> None:
        self._handle = None
        self._callback()


class GroupSettings(msgspec.Struct, frozen=True):
    """Habits and bounds of groups.

    How long the first rebalance of an empty group waits stands in `initial_delay.py`.
    """

    initial_delay_ms: int = 50
    initial_delay_max_ms: int = 3_000
    session_timeout_min_ms: int = 6_000
    session_timeout_max_ms: int = 1_800_000
    new_member_timeout_ms: int = 300_000  # of a newcomer that waits for the others to join
    size_max: int = 1_000  # members and ids handed out
    member_bytes_max: int = 1 << 20  # of one member's protocols and metadata
    bytes_max: int = 32 << 20  # of all members' metadata, and of an assignment
    total_bytes_max: int = 128 << 20  # of both, of all groups
    groups_max: int = 10_000
    offset_retention_ms: int = (
        7 * 24 * 3_600_000
    )  # of offsets without members that read on from them
    offset_check_ms: int = 600_000  # the interval of the check for such offsets


class JoinRequest(msgspec.Struct, frozen=True):
    """A JoinGroup request. Bytes are copies, not views of a receive buffer."""

    group: str
    member_id: str  # "" = none yet
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]  # name and metadata, the best liked first
    session_timeout_ms: int
    rebalance_timeout_ms: int
    instance_id: str | None = None  # set: a static member
    client_id: str = ""
    client_host: str = ""
    creator: str = ""  # the principal, if it has a name
    member_id_required: bool = False  # the client understands MemberIdRequired
    can_skip_assignment: bool = False  # the client understands `JoinResult.skip_assignment`


class JoinResultMember(NamedTuple):
    """What the leader's response contains of each member."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class MemberHandover(NamedTuple):
    """A member that comes from a group of the other kind, and what it was given there."""

    request: JoinRequest
    assignment: bytes


class JoinResult(msgspec.Struct, frozen=True):
    """The answer to a join. `members` is for the leader only."""

    generation: int
    protocol_type: str
    protocol: str
    leader_id: str
    member_id: str
    members: tuple[JoinResultMember, ...] = ()
    skip_assignment: bool = False


class SyncResult(msgspec.Struct, frozen=True):
    """The answer to a sync."""

    protocol_type: str
    protocol: str
    assignment: bytes


class EventContext(msgspec.Struct):
    """What came with the event that is being handled."""

    skip: bool = False  # the client that joins understands `skip_assignment`
    leader_before: str = ""
    sync_promise: Promise[SyncResult] | None = None
    assignments: Mapping[str, bytes] = msgspec.field(default_factory=dict)


class ClassicMember:
    """One member. `joining` and `syncing` are the answers it waits for."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "joining",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "syncing",
        "timer",
    )

    def __init__(self, member_id: str, request: JoinRequest) -> None:
        self.member_id = member_id
        self.instance_id = request.instance_id
        self.assignment = b""
        self.is_new = True
        self.joining: Promise[JoinResult] | None = None
        self.syncing: Promise[SyncResult] | None = None
        self.timer: TimerHandle | None = None
        self.protocols: tuple[tuple[str, bytes], ...] = ()
        self.update(request)

    def update(self, request: JoinRequest) -> bool:
        """Take over a (repeated) join; True when its protocols or metadata changed."""
        changed = self.protocols != request.protocols
        self.protocols = request.protocols
        self.client_id = request.client_id
        self.client_host = request.client_host
        self.session_timeout_ms = request.session_timeout_ms
        self.rebalance_timeout_ms = max(request.rebalance_timeout_ms, 0)
        return changed

    @property
    def waits(self) -> bool:
        """Whether it waits for an answer of ours, and so cannot be expected to show life."""
        return self.joining is not None or self.syncing is not None

    @property
    def size(self) -> int:
        """Bytes that its protocols hold."""
        return protocols_size(self.protocols)

    def metadata(self, protocol: str) -> bytes:
        """Return its metadata for one of its protocols."""
        return next((data for name, data in self.protocols if name == protocol), b"")

    def cancel_timer(self) -> None:
        """Stop waiting for a sign of life."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class GroupMemory:
    """The bytes of the members' metadata and assignments in all classic groups."""

    def __init__(self) -> None:
        self.size_bytes = 0


class ClassicMembers:
    """The members of one group, in the order in which they came."""

    def __init__(self, settings: GroupSettings, memory: GroupMemory | None = None) -> None:
        self._settings = settings
        self._memory = memory or GroupMemory()
        self._by_id: dict[str, ClassicMember] = {}
        self._static: dict[str, ClassicMember] = {}
        self._bytes = 0
        self.pending: dict[str, TimerHandle] = {}  # ids handed out, each with its expiry
        self.leader: ClassicMember | None = None

    def __iter__(self) -> Iterator[ClassicMember]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, member: ClassicMember) -> bool:
        return self._by_id.get(member.member_id) is member

    # -- who

    def static(self, instance_id: str | None) -> ClassicMember | None:
        """Return the member that stands for an instance."""
        return None if instance_id is None else self._static.get(instance_id)

    def find_member(self, member_id: str, instance_id: str | None) -> ClassicMember | None:
        """Return the member of this id or, without an id, the one that stands for an instance."""
        return self._by_id.get(member_id) if member_id else self.static(instance_id)

    def current(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """Return the member that a client is; raises UnknownMember, FencedInstance."""
        if instance_id is not None:
            static = self._static.get(instance_id)
            if static is None:
                raise UnknownMember("no member stands for this instance")
            if static.member_id != member_id:
                raise FencedInstance("another process has taken over this instance")
            return static
        found = self._by_id.get(member_id)
        if found is None:
            raise UnknownMember("no such member")
        return found

    def leads(self, member: ClassicMember) -> bool:
        """Whether it is the leader."""
        return member is self.leader

    # -- coming and going

    def check_room(self, *, joining: bool) -> None:
        """Refuse one more member or id.

        While everybody joins again (`joining`), those who have not do not count: they may be gone.
        """
        present = self._joined if joining else len(self._by_id)
        if present + len(self.pending) >= self._settings.size_max:
            raise GroupMaxSize(f"a group has {self._settings.size_max} members at most")

    def has_place(self, member: ClassicMember) -> bool:
        """Whether a member that joins again finds its place; newcomers may have been faster."""
        return member.joining is not None or self._joined < self._settings.size_max

    def check_join(
        self, request: JoinRequest, protocol_type: str, known: ClassicMember | None
    ) -> None:
        """Refuse a join that does not fit the limits or the other members."""
        limits = self._settings
        check_session(request, limits)
        size = protocols_size(request.protocols)
        before = 0 if known is None else known.size
        if size > limits.member_bytes_max or self._bytes - before + size > limits.bytes_max:
            raise GroupMaxSize("the metadata of a member, or of the group, is too large")
        if size > before:
            self._check_memory(size - before)
        names = {name for name, _ in request.protocols}
        if not names or not request.protocol_type:
            raise InconsistentProtocol("a member needs a kind of protocol, and protocols")
        others = [each for each in self if each is not known]
        if others and request.protocol_type != protocol_type:
            raise InconsistentProtocol(f"the group works by protocols of kind {protocol_type!r}")
        if others and not names & self._common(others):
            raise InconsistentProtocol("no protocol is common to all members")

    def add(self, member_id: str, request: JoinRequest) -> ClassicMember:
        """Take in a member; the first one leads."""
        member = self._by_id[member_id] = ClassicMember(member_id, request)
        self._count(member.size)
        if member.instance_id is not None:
            self._static[member.instance_id] = member
        if self.leader is None:
            self.leader = member
        return member

    def adopt(self, arrivals: Iterable[MemberHandover]) -> None:
        """Take in members that know each other already."""
        for request, assignment in arrivals:
            member = self.add(request.member_id, request)
            self.set_assignment(member, assignment)
            member.is_new = False

    def update(self, member: ClassicMember, request: JoinRequest) -> bool:
        """Take over another join of a known member; True when its protocols changed."""
        before = member.size
        changed = member.update(request)
        self._count(member.size - before)
        return changed

    def check_assignments(self, assignments: Mapping[str, bytes]) -> None:
        """Refuse assignments of members that are too large; raises GroupMaxSize."""
        size = sum(map(len, assignments.values()))
        if size > self._settings.bytes_max:
            raise GroupMaxSize("the assignment is too large")
        if size > (before := sum(len(member.assignment) for member in self)):
            self._check_memory(size - before)

    def release(self) -> None:
        """Count nothing from now on: the group is replaced by one of another kind."""
        self._memory.size_bytes -= self._bytes + sum(len(member.assignment) for member in self)
        self._memory = GroupMemory()

    def set_assignment(self, member: ClassicMember, assignment: bytes) -> None:
        """Keep the assignment of a member."""
        self._memory.size_bytes += len(assignment) - len(member.assignment)
        member.assignment = assignment

    def rename(self, member: ClassicMember, member_id: str) -> None:
        """Let a static member go on under another id, in its place in the order."""
        former = member.member_id
        member.member_id = member_id
        self._by_id = {
            (member_id if key == former else key): value for key, value in self._by_id.items()
        }

    def remove(self, member: ClassicMember) -> None:
        """Let a member go; the eldest of the others leads when it led."""
        del self._by_id[member.member_id]
        self._count(-member.size)
        self.set_assignment(member, b"")
        if member.instance_id is not None:
            del self._static[member.instance_id]
        if self.leader is member:
            self.leader = next(iter(self), None)
        member.cancel_timer()

    def _count(self, change: int) -> None:
        self._bytes += change
        self._memory.size_bytes += change

    def _check_memory(self, more: int) -> None:
        if self._memory.size_bytes + more > self._settings.total_bytes_max:
            raise GroupMaxSize("the metadata of all groups takes all memory for it")

    # -- together

    @property
    def _joined(self) -> int:
        return sum(member.joining is not None for member in self)

    @property
    def all_joined(self) -> bool:
        """Whether every member has joined again, and no id that was handed out is unused."""
        return not self.pending and all(member.joining is not None for member in self)

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest that a member may take to join again."""
        return max((member.rebalance_timeout_ms for member in self), default=0)

    def elect(self) -> bool:
        """Make a member that has joined the leader; False when none has."""
        for member in (self.leader, *self):
            if member is not None and member.joining is not None:
                self.leader = member
                return True
        return False

    def vote(self) -> str:
        """Choose the protocol that most members like best among those that all have.

        Between equals the leader's order decides, so that the outcome does not hang on chance.
        """
        assert self.leader is not None, "a vote without members"
        common = self._common(self)
        votes = Counter(
            next(name for name, _ in member.protocols if name in common) for member in self
        )
        order = [name for name, _ in self.leader.protocols if name in common]
        return max(order, key=votes.__getitem__)  # the first of equals

    def described(self, protocol: str) -> tuple[JoinResultMember, ...]:
        """Return what the leader's response contains of all members."""
        return tuple(
            JoinResultMember(member.member_id, member.instance_id, member.metadata(protocol))
            for member in self
        )

    @staticmethod
    def _common(members: Iterable[ClassicMember]) -> set[str]:
        return set.intersection(*({name for name, _ in member.protocols} for member in members))


def protocols_size(protocols: Iterable[tuple[str, bytes]]) -> int:
    """Return the bytes that a list of protocols counts for."""
    return sum(len(name) + len(data) + PROTOCOL_OVERHEAD for name, data in protocols)


def check_session(request: JoinRequest, limits: GroupSettings) -> None:
    """Refuse a session timeout outside the limits."""
    timeout, least, most = (
        request.session_timeout_ms,
        limits.session_timeout_min_ms,
        limits.session_timeout_max_ms,
    )
    if not least <= timeout <= most:
        raise InvalidSessionTimeout(f"{timeout} ms is outside {least} to {most}")


def new_member_id(request: JoinRequest, suffix: str) -> str:
    """Return an id for a member that joins, by which people may know it."""
    prefix = request.instance_id or request.client_id
    return f"{prefix[:CLIENT_ID_KEPT]}-{suffix}"
