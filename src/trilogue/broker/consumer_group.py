"""One consumer group: members say what they want and have, the broker says what they shall have.

The group has an epoch, one more with every change of its members, of what they want or of their
topics. For each epoch the assignor makes a target, what each member shall have in the end, at the
next heartbeat of any member. Members walk towards it at their own pace, one heartbeat after another
(`consumer_group_members.advance`): nobody waits for the others, and only what changes hands stops.

States, derived and never stored:

    Empty         no members
    Assigning     the group's epoch is ahead of the target's
    Reconciling   some member is not where the target wants it
    Stable        everyone is

Members go when their session ends (no heartbeat), when they do not give up in time what they shall
not have (the rebalance timeout), or when they say so. A static member that says it will come back
keeps what it has until its session ends. All of this is memory: after a restart members hear that
they are unknown, join again, and go on from the durable positions.

Members may also speak as classic ones do (consumer_group_classic.py). KIP-848; details as Kafka
4.3.1 answers them, measured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from trilogue.broker.any_group import CONSUMER, CONSUMER_PROTOCOL
from trilogue.broker.consumer_group_assignors import (
    ASSIGNORS,
    DEFAULT_ASSIGNOR,
    NOTHING,
    Parts,
    Target,
    Wish,
)
from trilogue.broker.consumer_group_load import MEMBER_WEIGHT
from trilogue.broker.consumer_group_members import (
    AWAY,
    JOINING,
    LEAVING,
    ConsumerMembers,
    Member,
    Phase,
    Wait,
    advance,
)
from trilogue.broker.consumer_group_patterns import compile_pattern
from trilogue.broker.consumer_group_steps import Work
from trilogue.broker.consumer_group_topics import NOTHING_WANTED, Commons, Wanted, Wants
from trilogue.broker.errors import (
    FencedInstance,
    GroupMaxSize,
    IllegalGeneration,
    InvalidRequest,
    StaleMemberEpoch,
    UnknownMember,
    UnreleasedInstance,
    UnsupportedAssignor,
)
from trilogue.broker.names import TopicName
from trilogue.log.steps import Steps

EMPTY, ASSIGNING, RECONCILING, STABLE = "Empty", "Assigning", "Reconciling", "Stable"
SESSION_KEY, HEARTBEAT_KEY = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
EPOCH_MAX = 2**31 - 1
RESTS_FROM = 1  # steps: what takes less may be done with every heartbeat
STEPS_PER_S, REST_MAX_S = 100, 10.0  # a tenth of the loop, since a step takes a millisecond


def all_seen(_: TopicName) -> bool:
    """Whoever beats may see every topic."""
    return True


@dataclass(frozen=True, slots=True)
class ConsumerGroupSettings:
    """Habits and bounds of consumer groups; Kafka's defaults, but for the bounds (there: none)."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    size_max: int = 1_000
    topics_max: int = 10_000  # that one member may name
    total_max: int = 5_000_000  # names, partitions and (20 each) members, of all groups together
    upgrade: bool = True  # a classic group with members may become a consumer group
    downgrade: bool = True  # and the other way round, when only classic members are left


@dataclass(frozen=True, slots=True)
class Beat:
    """What a member says. None = nothing new."""

    group: str
    member_id: str
    epoch: int  # JOINING, LEAVING, AWAY, or the member's
    instance_id: str | None = None
    rack: str | None = None
    rebalance_timeout_ms: int = -1
    topics: frozenset[TopicName] | None = None
    pattern: str | None = None
    assignor: str | None = None
    owned: Parts | None = None
    client_id: str = ""
    client_host: str = ""
    may_see: Callable[[TopicName], bool] = all_seen

    @property
    def is_full(self) -> bool:
        """Whether it says all that a member can say: then it is told all, too."""
        says_topics = self.topics is not None or self.pattern is not None
        return self.epoch == JOINING or (
            self.rebalance_timeout_ms >= 0 and says_topics and self.owned is not None
        )


class Beaten(NamedTuple):
    """The answer. `has` is None when it is as it was."""

    member_id: str
    epoch: int
    heartbeat_interval_ms: int = 0
    has: Parts | None = None


class ConsumerGroup:
    """A group by its name. See the module for the rules."""

    def __init__(self, name: str, settings: ConsumerGroupSettings, commons: Commons) -> None:
        self.name = name
        self.protocol_type = CONSUMER_PROTOCOL
        self.settings = settings
        self.epoch = 1
        self.target_epoch = 0
        self.target: Target = {}
        self.members = ConsumerMembers()
        self.wanted = Wanted(commons)
        self.commons = commons
        self._making: Work | None = None  # a target that is not done yet
        self._resting = False
        self._weighed = (0, 0)
        self.said: Callable[[str], int | None] = lambda _: None  # of this group alone, by setting

    # -- the face (any_group.py)

    @property
    def type(self) -> str:
        """The broker assigns."""
        return CONSUMER

    @property
    def state_name(self) -> str:
        """The state as tools show it."""
        if not len(self.members):
            return EMPTY
        if self.epoch > self.target_epoch:
            return ASSIGNING
        if all(member.settled_at(self.target_epoch) for member in self.members):
            return STABLE
        return RECONCILING

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        return not len(self.members)

    @property
    def assignor(self) -> str:
        """The assignor that most members want, of those who want one."""
        votes = Counter(each.assignor for each in self.members if each.assignor is not None)
        return votes.most_common(1)[0][0] if votes else DEFAULT_ASSIGNOR

    def subscribes_to(self, topic: TopicName) -> bool:
        """Whether some member reads the topic."""
        return self.wanted.includes(topic)

    def reading(self) -> Callable[[TopicName], bool]:
        """Whether some member reads a topic, for many topics."""
        return self.wanted.includes

    def forget(self) -> None:
        """End an empty group."""
        assert self.is_empty, "a group with members was forgotten"

    def check_commit(self, member_id: str, generation: int, _: str | None = None) -> None:
        """Refuse a commit that does not come from a member at its present epoch.

        While nobody is a member, whoever names no epoch may commit.
        """
        if generation < 0 and self.is_empty:
            return
        self._check_epoch(self.known(member_id), generation)

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Refuse to tell positions to a member that is behind; who names none is told."""
        if member_id is None and epoch < 0:
            return
        self._check_epoch(self.known(member_id or ""), epoch)

    @staticmethod
    def _check_epoch(member: Member, epoch: int) -> None:
        if epoch == member.epoch:
            return
        what = f"the member is at epoch {member.epoch}, not {epoch}"
        raise IllegalGeneration(what) if member.classic is not None else StaleMemberEpoch(what)

    # -- what members say

    def beat(self, beat: Beat) -> Beaten:
        """Hear that a member lives, wants and has; say what it may have now."""
        if beat.epoch in {LEAVING, AWAY}:
            return self._leave(beat)
        member = self._speaker(beat)
        had = member.has
        self.take(member, beat)
        self.refresh(beat.may_see)
        self.step(member, beat.owned)
        self.arm_session(member)
        return Beaten(
            member.member_id,
            member.epoch,
            self._interval_ms(member),
            member.has if beat.is_full or member.has != had else None,
        )

    def _interval_ms(self, member: Member) -> int:
        """When a member shall beat next: soon, while the group changes."""
        if member.heard_epoch != self.epoch:
            member.heard_epoch, member.beats = self.epoch, 0
        usual_ms = self.said(HEARTBEAT_KEY) or self.settings.heartbeat_interval_ms
        waits = member.phase is Phase.AWAITING or member.epoch < self.epoch
        member.beats += 1
        return self.commons.load.interval_ms(usual_ms, member.beats - 1, waits=waits)

    def known(self, member_id: str) -> Member:
        """Return the member of this id, or say that there is none."""
        member = self.members.find(member_id)
        if member is None:
            raise UnknownMember(f"member {member_id} is not a member of group {self.name}")
        return member

    def static(self, member_id: str, instance_id: str) -> Member:
        """Return the member of this instance, if it still goes by this id."""
        member = self.members.static(instance_id)
        if member is None:
            raise UnknownMember(f"no member stands for instance {instance_id}")
        if member.member_id != member_id:
            raise FencedInstance(
                f"member {member_id} of instance {instance_id}"
                f" was fenced by member {member.member_id}"
            )
        return member

    def check_room(self, member_id: str) -> None:
        """Refuse one more member."""
        if self.members.find(member_id) is not None:
            return
        if len(self.members) >= self.settings.size_max:
            raise GroupMaxSize(f"a group has {self.settings.size_max} members at most")
        self.commons.load.check_room(MEMBER_WEIGHT)

    def weigh(self) -> None:
        """Say what this group takes of memory now."""
        members = len(self.members)
        weight = self.wanted.size + members * MEMBER_WEIGHT
        self.commons.load.change(weight - self._weighed[0], members - self._weighed[1])
        self._weighed = weight, members

    def _speaker(self, beat: Beat) -> Member:
        """Find who beats, take in who joins, or refuse who may not; nothing is changed then."""
        joins = beat.epoch == JOINING
        self.check_room(beat.member_id)
        self.wanted.check_room((beat.topics or frozenset(), beat.pattern or ""))
        if beat.instance_id is None:
            member = self.members.find(beat.member_id)
            if member is None and joins:
                return self.take_in(Member(beat.member_id))
            member = self.known(beat.member_id)
            member.check_epoch(beat.epoch, beat.owned)
            return member
        former = self.members.static(beat.instance_id)
        if not joins:
            member = self.static(beat.member_id, beat.instance_id)
            member.check_epoch(beat.epoch, beat.owned)
            return member
        if former is None:
            member = self.members.find(beat.member_id)
            return member or self.take_in(Member(beat.member_id, beat.instance_id))
        if former.epoch != AWAY and former.classic is None:
            raise UnreleasedInstance(
                f"instance {beat.instance_id} belongs to member {former.member_id}"
            )
        other = self.members.find(beat.member_id)
        if other is not None and other is not former:
            raise InvalidRequest(f"member id {beat.member_id} is another member's")
        return self.replace(former, beat.member_id)

    def take_in(self, member: Member) -> Member:
        """Let a new member in; it has nothing yet."""
        self.members.add(member)
        self.weigh()
        return member

    def replace(self, former: Member, member_id: str) -> Member:
        """Let a static member go on under another id, with all that it had, from epoch 0."""
        target = self.target.pop(former.member_id, NOTHING)
        self.members.remove(former)
        former.member_id = member_id
        former.epoch = former.previous_epoch = JOINING
        self.members.add(former)
        self.target[member_id] = target
        return former

    def take(self, member: Member, beat: Beat) -> None:
        """Note what a member says of itself; the group's epoch moves when it wants other topics."""
        before = member.wants
        if beat.rack is not None:
            member.rack = beat.rack
        if beat.rebalance_timeout_ms >= 0:
            member.rebalance_timeout_ms = beat.rebalance_timeout_ms
        if beat.assignor is not None:
            member.assignor = beat.assignor
        if beat.topics is not None:
            member.topics = self.wanted.share(beat.topics)
        if beat.pattern is not None:
            member.pattern = beat.pattern
        member.client_id, member.client_host = beat.client_id, beat.client_host
        if member.classic is not None:
            member.cancel_timers()
            member.classic = None
        self.rewant(before, member)

    def rewant(self, before: Wants, member: Member) -> None:
        """Count the topics that a member wants now."""
        if before != member.wants:
            self.wanted.change(before, member.wants)
            self.weigh()
            self.bump()

    # -- epochs and targets

    def bump(self) -> None:
        """Begin the next epoch."""
        self.epoch += 1
        assert self.epoch <= EPOCH_MAX

    def refresh(self, may_see: Callable[[TopicName], bool] = all_seen) -> None:
        """Look whether topics have changed, and make a target for the group's epoch.

        What that takes in steps beyond the first ones goes on later: until then members stay where
        they are, and who joins has nothing yet.
        """
        if self.is_making or self._resting:
            return
        if self.wanted.is_stale() or self.epoch > self.target_epoch:
            making = self.commons.turns.start(self._make(may_see), self._made)
            self._making = making
            if not making.ended and not self.target_epoch:
                self.epoch = max(self.epoch, 2)
                self.target_epoch = self.epoch - 1  # at 0 nobody would be a member

    @property
    def is_making(self) -> bool:
        """Whether a target is being made."""
        return self._making is not None and not self._making.ended

    def stop_making(self) -> None:
        """Do not go on with a target: this group is no more, or is empty."""
        if self._making is not None:
            self._making.stop()

    def _make(self, may_see: Callable[[TopicName], bool]) -> Steps[None]:
        if self.wanted.is_stale():
            changed = yield from self.wanted.look(may_see)
            if changed and self.epoch == self.target_epoch:
                self.bump()
        if self.epoch == self.target_epoch:
            return
        epoch, members, wishes = self.epoch, list(self.members), []
        ids: dict[Wants, frozenset[bytes]] = {}
        for member in members:
            wants = member.wants
            if wants not in ids:
                ids[wants] = yield from self.wanted.ids(wants)
            had = self.target.get(member.member_id, NOTHING)
            wishes.append(Wish(member.member_id, ids[wants], member.instance_id, had))
        counts = {seen.topic_id: seen.partition_count for seen in self.wanted.view.values()}
        made = yield from ASSIGNORS[self.assignor](wishes, counts)
        self.target = {
            member.member_id: made[wish.member_id]  # it may go by another id by now
            for member, wish in zip(members, wishes, strict=True)
            if self.members.find(member.member_id) is member
        }
        self.target_epoch = epoch

    def _made(self, steps: int) -> None:
        """Let time go by between targets that are much work: who comes meanwhile waits for it.

        Kafka 4.3 waits a second between any two targets of a group.
        """
        self.weigh()
        if steps < RESTS_FROM:
            return

        def rested() -> None:
            self._resting = False

        self._resting = True
        self.commons.timers.call_later(min(steps / STEPS_PER_S, REST_MAX_S), rested)

    def step(self, member: Member, owned: Parts | None) -> None:
        """Bring a member one step nearer to its target."""
        phase, epoch = member.phase, member.epoch
        target = self.target.get(member.member_id, NOTHING)
        advance(member, target, self.target_epoch, self.members.owners, owned)
        if member.classic is not None:
            return
        if member.phase is not Phase.GIVING_UP:
            member.stop(Wait.GIVE_UP)
        elif (phase, epoch) != (Phase.GIVING_UP, member.epoch) or Wait.GIVE_UP not in member.waits:
            self.wait(member, Wait.GIVE_UP, member.rebalance_timeout_ms)

    def wait(self, member: Member, what: Wait, timeout_ms: int) -> None:
        """Let a member go if something does not come in time."""
        timer = self.commons.timers.call_later(timeout_ms / 1_000, lambda: self.fence(member))
        member.wait(what, timer)

    # -- going

    def _leave(self, beat: Beat) -> Beaten:
        if beat.instance_id is None:
            self.fence(self.known(beat.member_id))
            return Beaten(beat.member_id, beat.epoch)
        member = self.static(beat.member_id, beat.instance_id)
        if beat.epoch == AWAY:
            self.go_away(member)
        else:
            self.fence(member)
        return Beaten(beat.member_id, beat.epoch)

    def go_away(self, member: Member) -> None:
        """Keep a static member's place; what it was giving up is free."""
        before = member.holds
        member.gives_up = NOTHING
        member.phase = Phase.SETTLED
        member.epoch = AWAY
        self.members.owners.update(member.member_id, before, member.holds)
        member.stop(Wait.GIVE_UP)

    def fence(self, member: Member) -> None:
        """Let a member go, by its will or not."""
        if self.members.find(member.member_id) is member:
            self.drop(member)

    def drop(self, member: Member) -> None:
        """Let a member go; this group stays."""
        self.members.remove(member)
        self.target.pop(member.member_id, None)
        self.wanted.change(member.wants, NOTHING_WANTED)
        self.bump()
        if self.is_empty:
            self.stop_making()
            self.wanted.forget()
            self.gone_empty()
        self.weigh()

    def gone_empty(self) -> None:
        """Hear that the last member has gone."""

    def arm_session(self, member: Member) -> None:
        """Wait for the next sign of life."""
        classic = member.classic
        if classic is not None:
            timeout_ms = classic.session_timeout_ms
        else:
            timeout_ms = self.said(SESSION_KEY) or self.settings.session_timeout_ms
        self.wait(member, Wait.BEAT, timeout_ms)


def check_words(beat: Beat, settings: ConsumerGroupSettings) -> None:
    """Refuse what no member may say, whatever group it is in."""
    if beat.assignor is not None and beat.assignor not in ASSIGNORS:
        names = ", ".join(ASSIGNORS)
        raise UnsupportedAssignor(f"{beat.assignor} is not an assignor here; there are: {names}")
    if beat.pattern:
        compile_pattern(beat.pattern)
    if beat.topics is not None and len(beat.topics) > settings.topics_max:
        raise InvalidRequest(f"a member may name {settings.topics_max} topics")
