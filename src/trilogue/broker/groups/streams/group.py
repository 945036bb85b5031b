"""One streams group (KIP-1071): members report a topology and tasks, the broker assigns tasks.

The first member brings the topology; others must bring the same. When the topics of the topology
are there (topology_configuration.py), the assignor gives each member its tasks, and members reach
them as those of consumer groups do (groups/reconciling_group.py). Until then no member has a task,
and each heartbeat reports what is missing.

    Empty         no members
    NotReady      topics are missing or have the wrong number of partitions
    Assigning     the group's epoch is ahead of the target's
    Reconciling   some member is not where the target wants it
    Stable        every member is

A new group waits a little for more members before it computes its first target. Epoch, topology and
members are stored (records.py), epoch and topology also without members.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from trilogue.broker.errors import BrokerError, InvalidRequest, InvalidTopology
from trilogue.broker.groups.consumer.context import ConsumerGroupContext
from trilogue.broker.groups.consumer.subscribed_topics import NO_TOPICS
from trilogue.broker.groups.group import STREAMS
from trilogue.broker.groups.membership import GROUP
from trilogue.broker.groups.no_classic_members import NoClassicMembers
from trilogue.broker.groups.reconciliation import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
)
from trilogue.broker.groups.reconciling_group import ReconcilingGroup
from trilogue.broker.groups.registry import GroupRegistry
from trilogue.broker.groups.streams.assignor import TaskMember, assign_tasks
from trilogue.broker.groups.streams.members import (
    EndpointPartitions,
    GroupStatus,
    PartitionsOfTopic,
    StreamsGroupMember,
    StreamsGroupMembers,
    StreamsHeartbeat,
    StreamsHeartbeatResponse,
)
from trilogue.broker.groups.streams.records import encode_group, encode_member
from trilogue.broker.groups.streams.tasks import (
    NO_TASKS,
    TaskRole,
    Tasks,
    active_tasks,
    tasks_of_role,
)
from trilogue.broker.groups.streams.topology import Topology
from trilogue.broker.groups.streams.topology_configuration import (
    ConfiguredTopology,
    TopologyProblem,
    configure_topology,
)
from trilogue.broker.names import TopicName
from trilogue.log.steps import Steps

NOT_READY: Final = "NotReady"
DELAY_KEY: Final = "streams.initial.rebalance.delay.ms"
STANDBY_KEY: Final = "streams.num.standby.replicas"
TOPOLOGY_BYTES_MAX: Final = 256 << 10
SUBTOPOLOGIES_MAX: Final = 1_000
TOPOLOGY_BYTES_A_NAME: Final = 16  # of the stored form: in memory it takes about seven times that
DELAYED = "Assignment delayed due to the configured initial rebalance delay."
COMPUTING = "Assignment delayed because it is being computed."

STATUS_OF_PROBLEM: Final = {
    TopologyProblem.MISSING_SOURCE_TOPICS: GroupStatus.MISSING_SOURCE_TOPICS,
    TopologyProblem.INCORRECTLY_PARTITIONED_TOPICS: GroupStatus.INCORRECTLY_PARTITIONED_TOPICS,
    TopologyProblem.MISSING_INTERNAL_TOPICS: GroupStatus.MISSING_INTERNAL_TOPICS,
}


class StreamsGroupSettings(msgspec.Struct, frozen=True):
    """Habits and bounds of streams groups; Kafka's defaults, but for `size_max` (there: none)."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    size_max: int = 1_000
    standby_replicas: int = 0
    initial_delay_ms: int = 3_000


class StreamsGroup(NoClassicMembers, ReconcilingGroup[StreamsGroupMember]):
    """A group by its name. See the module for the rules."""

    session_key = "streams.session.timeout.ms"
    heartbeat_key = "streams.heartbeat.interval.ms"
    protocol_type = type = STREAMS
    kind = "streams group"
    members: StreamsGroupMembers

    def __init__(
        self,
        name: str,
        settings: StreamsGroupSettings,
        groups: GroupRegistry,
        context: ConsumerGroupContext,
        get_override: Callable[[str], int | None] = lambda _: None,
    ) -> None:
        super().__init__(name, settings, context, StreamsGroupMembers())
        self.settings = settings
        self.target_epoch = 1  # of no tasks: a member at epoch 0 would have to join again
        self.get_override = get_override
        self.topology: Topology | None = None
        self.configured: ConfiguredTopology | None = None
        self.endpoint_epoch = 0
        self._groups = groups
        self._invalid: InvalidTopology | None = None
        self._delay: object | None = None  # the timer of the first target
        self.standby_replicas = self._wanted_replicas()
        self._shutdown_by: str | None = None

    # -- the interface (broker/groups/group.py)

    @property
    def state_name(self) -> str:
        """The state as tools show it."""
        if not self.is_empty and not self.is_ready:
            return NOT_READY
        return super().state_name

    @property
    def is_ready(self) -> bool:
        """Whether the topics of the topology are as it needs them."""
        return self.configured is not None and self.configured.is_ready

    @property
    def weight(self) -> int:
        """The memory that this group takes, in names of topics, its topology included."""
        return super().weight + _weigh(self.topology)

    def subscribes_to(self, topic: TopicName) -> bool:
        """Whether tasks read the topic."""
        return self.topology is not None and topic in self.topology.read_topics

    def reading(self) -> Callable[[TopicName], bool]:
        """Whether tasks read a topic, for many topics."""
        return self.subscribes_to

    def forget(self) -> None:
        """End an empty group."""
        super().forget()
        self._set_topology(None)
        self.report_size()

    def release(self, error: BrokerError) -> None:
        """End here as it is: another node goes on with its members, from the rows."""
        super().release(error)
        self.topology = self.configured = None
        self.report_size()

    def leave(self, member_id: str, instance_id: str | None = None) -> None:
        """Refuse a classic member; an administrator may remove a member of its id."""
        member = self.members.find_member(member_id)
        if instance_id is not None or member is None:
            raise self.unknown_classic(member_id)
        self.fence(member)

    def partition_epoch(
        self, member: StreamsGroupMember, topic_id: bytes, index: int
    ) -> int | None:
        """Return the epoch since which a member has had the active task of a partition."""
        names = {name for name, seen in self.subscribed.view.items() if seen.topic_id == topic_id}
        for each in self.topology.subtopologies if self.topology is not None else ():
            if not names.isdisjoint(each.read_topics()):
                since = member.assignment_epoch((TaskRole.ACTIVE, each.subtopology_id), index)
                if since is not None:
                    return since
        return None

    # -- requests of members

    def streams_heartbeat(self, heartbeat: StreamsHeartbeat) -> StreamsHeartbeatResponse:
        """Process a heartbeat and return the tasks that the member may have now."""
        if heartbeat.epoch == LEAVE_EPOCH:
            return self._leave(heartbeat)
        member = self._admit_member(heartbeat)
        had = member.assigned
        self._apply_heartbeat(member, heartbeat)
        self.refresh()
        self._check_tasks(member, heartbeat.owned)
        self.step(member, heartbeat.owned)
        self.start_session_timer(member)
        is_full = heartbeat.epoch == JOIN_EPOCH or member.assigned != had
        if is_full and member.endpoint is not None:
            self.endpoint_epoch += 1
        self._store_member(member)
        return StreamsHeartbeatResponse(
            member.member_id,
            member.epoch,
            self.next_interval_ms(member),
            member.assigned if is_full else None,
            tuple(self._statuses(member)),
            self.endpoint_epoch,
            None if heartbeat.endpoint_epoch == self.endpoint_epoch else self._endpoints(),
            self.configured.missing if self.configured is not None else (),
        )

    def is_waiting(self, member: StreamsGroupMember) -> bool:
        """Whether a member waits for something that others or the broker do."""
        return super().is_waiting(member) or not self.is_ready

    def refresh(self) -> None:
        """Look whether topics have changed, and compute a target for the group's epoch."""
        if self._wanted_replicas() != self.standby_replicas:
            self.standby_replicas = self._wanted_replicas()
            self.bump()
        if self.subscribed.is_stale() or self.configured is None or self._is_behind:
            self.start_computing(self._compute_target())

    def fence(self, member: StreamsGroupMember) -> None:
        """Remove a member, by its will or not."""
        if self.members.find_member(member.member_id) is not member:
            return
        self.members.remove(member)
        self.target.pop(member.member_id, None)
        self.bump()
        if member.endpoint is not None:
            self.endpoint_epoch += 1
        if self.is_empty:
            self.stop_computing()
            self._shutdown_by = None
            self._groups.on_emptied(self)
        rows = {member.member_id: None, GROUP: encode_group(self.epoch, self.topology)}
        self._groups.membership.store(self.name, rows)
        self.report_size()

    def restore(
        self, epoch: int, topology: Topology | None, members: Iterable[StreamsGroupMember]
    ) -> None:
        """Go on with what is stored, in a group that is new; the next epoch begins."""
        self._set_topology(topology)
        self.restore_members(epoch, members, lambda member: active_tasks(member.held))

    # -- inside

    @property
    def _is_behind(self) -> bool:
        return self._delay is None and self.epoch > self.target_epoch

    def _wanted_replicas(self) -> int:
        own = self.get_override(STANDBY_KEY)
        return self.settings.standby_replicas if own is None else own

    def _leave(self, heartbeat: StreamsHeartbeat) -> StreamsHeartbeatResponse:
        member = self.require_member(heartbeat.member_id)
        if heartbeat.shutdown:
            self._shutdown_by = self._shutdown_by or member.member_id
        self.fence(member)
        return StreamsHeartbeatResponse(heartbeat.member_id, heartbeat.epoch)

    def _admit_member(self, heartbeat: StreamsHeartbeat) -> StreamsGroupMember:
        """Return the member of a heartbeat, or refuse it; nothing is changed then."""
        if heartbeat.epoch != JOIN_EPOCH:
            member = self.require_member(heartbeat.member_id)
            member.check_epoch(heartbeat.epoch, heartbeat.owned)
            return member
        self.check_room(heartbeat.member_id)
        topology = heartbeat.topology
        assert topology is not None, "the gateway refuses a join without a topology"
        known = self.topology
        if known is None:
            self._check_topology(topology)
        elif topology.epoch >= known.epoch and topology != known:
            raise InvalidRequest("Topology updates are not supported yet.")
        found = self.members.find_member(heartbeat.member_id)
        if found is not None:
            return found
        if known is None:
            self._set_topology(topology)
        if self.is_empty:
            self._start_delay()
        member = StreamsGroupMember(heartbeat.member_id)
        self.members.add(member)
        self.report_size()
        return member

    def _check_topology(self, topology: Topology) -> None:
        if len(topology.encoded) > TOPOLOGY_BYTES_MAX:
            raise InvalidTopology(f"a topology may take {TOPOLOGY_BYTES_MAX} bytes")
        if len(topology.subtopologies) > SUBTOPOLOGIES_MAX:
            raise InvalidTopology(f"a topology may have {SUBTOPOLOGIES_MAX} subtopologies")
        self.subscribed.check_room((topology.topics, ""))
        self.context.load.check_room(len(topology.topics) + _weigh(topology))

    def _set_topology(self, topology: Topology | None) -> None:
        before = NO_TOPICS if self.topology is None else (self.topology.topics, "")
        self.topology, self.configured = topology, None
        self.subscribed.change(before, NO_TOPICS if topology is None else (topology.topics, ""))
        self.report_size()

    def _start_delay(self) -> None:
        own = self.get_override(DELAY_KEY)
        delay_ms = self.settings.initial_delay_ms if own is None else own
        if delay_ms > 0 and self._delay is None:

            def end_delay() -> None:
                self._delay = None
                if not self.is_empty:
                    self.refresh()

            self._delay = self.context.timers.call_later(delay_ms / 1_000, end_delay)

    def _apply_heartbeat(self, member: StreamsGroupMember, heartbeat: StreamsHeartbeat) -> None:
        before = member.description
        if heartbeat.rack is not None:
            member.rack = heartbeat.rack
        if heartbeat.rebalance_timeout_ms >= 0:
            member.rebalance_timeout_ms = heartbeat.rebalance_timeout_ms
        if heartbeat.topology is not None:
            member.topology_epoch = heartbeat.topology.epoch
        if heartbeat.process_id is not None and heartbeat.process_id != member.process_id:
            member.process_id = heartbeat.process_id
            self.members.owners.set_process(member.member_id, member.process_id)
        if heartbeat.endpoint is not None:
            member.endpoint = heartbeat.endpoint
        if heartbeat.tags is not None:
            member.tags = heartbeat.tags
        member.client_id, member.client_host = heartbeat.client_id, heartbeat.client_host
        if heartbeat.shutdown:
            self._shutdown_by = self._shutdown_by or member.member_id
        if member.description != before:
            self.bump()

    def _compute_target(self) -> Steps[None]:
        was_ready = self.is_ready
        changed = False
        if self.subscribed.is_stale():
            changed = yield from self.subscribed.refresh_view(lambda _: True)
        if (changed or self.configured is None) and not self._configure():
            return
        if (changed or was_ready != self.is_ready) and self.epoch == self.target_epoch:
            self.bump()
        if not self._is_behind:
            return
        epoch, members = self.epoch, list(self.members)
        assert self.configured is not None
        assigned = yield from assign_tasks(
            [
                TaskMember(
                    member.member_id,
                    member.process_id,
                    self.target.get(member.member_id, NO_TASKS),
                )
                for member in members
            ],
            self.configured.subtopologies if self.is_ready else {},
            self.standby_replicas,
        )
        self.target = {
            member.member_id: assigned[member.member_id]
            for member in members
            if self.members.find_member(member.member_id) is member
        }
        self.target_epoch = epoch

    def _configure(self) -> bool:
        """Hold the topology against its topics; False where none could fit."""
        assert self.topology is not None
        counts = {name: seen.partition_count for name, seen in self.subscribed.view.items()}
        try:
            self.configured = configure_topology(self.topology, counts)
        except InvalidTopology as error:
            self._invalid = error
            return False
        return True

    def _check_tasks(self, member: StreamsGroupMember, owned: Tasks | None) -> None:
        """Refuse a topology that no topics could fit, and tasks that do not exist."""
        if self._invalid is not None:
            error, self._invalid = self._invalid, None
            self.fence(member)
            if self.is_empty:
                self._set_topology(None)
            raise error
        configured = self.configured
        if owned is None or configured is None or not configured.is_ready:
            return
        for (_, name), numbers in owned.items():
            sub = configured.subtopologies.get(name)
            if sub is None:
                raise InvalidRequest(f"Subtopology {name} does not exist in the topology.")
            if not all(0 <= number < sub.task_count for number in numbers):
                raise InvalidRequest(f"Task of subtopology {name} does not exist in the topology.")

    def _statuses(self, member: StreamsGroupMember) -> Iterable[tuple[GroupStatus, str]]:
        topology, configured = self.topology, self.configured
        if topology is not None and member.topology_epoch < topology.epoch:
            text = (
                f"The member's topology epoch {member.topology_epoch} is behind"
                f" the group's topology epoch {topology.epoch}."
            )
            yield GroupStatus.STALE_TOPOLOGY, text
        if self._delay is not None:
            yield GroupStatus.ASSIGNMENT_DELAYED, DELAYED
        elif self.epoch > self.target_epoch:
            yield GroupStatus.ASSIGNMENT_DELAYED, COMPUTING
        if configured is not None and configured.problem is not None:
            yield STATUS_OF_PROBLEM[configured.problem], configured.problem_text
        if self._shutdown_by is not None:
            text = (
                f"Streams group member {self._shutdown_by} encountered a fatal error"
                " and requested a shutdown for the entire application."
            )
            yield GroupStatus.SHUTDOWN_APPLICATION, text

    def _endpoints(self) -> list[EndpointPartitions]:
        """Return the partitions of every member that has an endpoint."""
        return [
            EndpointPartitions(
                member.endpoint,
                self._partitions_of(member.assigned, TaskRole.ACTIVE),
                self._partitions_of(member.assigned, TaskRole.STANDBY),
            )
            for member in self.members
            if member.endpoint is not None
        ]

    def _partitions_of(self, tasks: Tasks, role: TaskRole) -> list[PartitionsOfTopic]:
        found: list[PartitionsOfTopic] = []
        configured = self.configured
        for name, numbers in tasks_of_role(tasks, role).items():
            sub = configured.subtopologies.get(name) if configured is not None else None
            for topic in sub.subtopology.read_topics() if sub is not None else ():
                seen = self.subscribed.view.get(topic)
                if seen is not None:
                    found.append((topic, sorted(n for n in numbers if n < seen.partition_count)))
        return found

    def _store_member(self, member: StreamsGroupMember) -> None:
        rows = {GROUP: encode_group(self.epoch, self.topology)}
        fields = member.stored_fields
        if fields != member.stored:
            member.stored = fields
            rows[member.member_id] = encode_member(member)
        self._groups.membership.store(self.name, rows)


def _weigh(topology: Topology | None) -> int:
    """Return the memory that a topology takes beside its names, in names of topics."""
    return 0 if topology is None else len(topology.encoded) // TOPOLOGY_BYTES_A_NAME
