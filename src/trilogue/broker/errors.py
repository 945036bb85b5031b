"""Why the broker said no: one class per reason, each gateway turns it into its protocol's own code.

These are expected outcomes of a request, so they travel inside promises and, in a batch, beside the
results of its neighbours. `EVERY` lists them; the tests of each gateway walk it, so a new reason
without a code in some door does not get far.
"""

from __future__ import annotations

from trilogue.broker.access import Operation, Resource
from trilogue.log import errors as log_errors
from trilogue.log.errors import LogError


class BrokerError(Exception):
    """A request that the broker refuses; the message is for people and names no secrets."""


# -- topics and partitions


class UnknownTopic(BrokerError):
    """No such topic, or no such partition of it."""


class UnknownTopicId(BrokerError):
    """No topic has this id: it was deleted, or made again under another id."""


class TopicExists(BrokerError):
    """The name is taken, by a topic or by one that is just being made."""


class NeedsPartition(UnknownTopic):
    """The topic has numbered partitions, and the bare name was used for one."""


class UnknownNamespace(BrokerError):
    """No such tenant or namespace."""


class NamespaceExists(BrokerError):
    """There is a tenant or a namespace of this name."""


class InUse(BrokerError):
    """It cannot go, or there can be no more, while others are there."""


class Outrun(BrokerError):
    """Somebody changed the same thing first: decide again on what is there now."""


class InvalidName(BrokerError):
    """A name that no topic can have."""


class InvalidPartitions(BrokerError):
    """A number of partitions that is not possible."""


class ReplicationFactor(BrokerError):
    """More copies were asked for than there are nodes."""


class InvalidAssignment(BrokerError):
    """A placement of partitions that names nodes we do not have, or leaves gaps."""


class InvalidSetting(BrokerError):
    """A topic setting that is unknown, malformed, or that we would not enforce."""


class InvalidRequest(BrokerError):
    """A request that contradicts itself."""


class NotServed(BrokerError):
    """Something the protocol knows and we do not do (yet)."""


class NotOwner(BrokerError):
    """Another node owns the partition."""


class StaleEpoch(BrokerError):
    """The client knows an older owner than we are: it must look again."""


class UnknownEpoch(BrokerError):
    """The client knows a newer owner than we do."""


class PolicyViolation(BrokerError):
    """Something that the topic's own settings forbid."""


class OffsetOutOfRange(BrokerError):
    """An offset beyond the end of the partition."""


class TopicTerminated(BrokerError):
    """The topic was ended for good: it is read, and takes no more messages."""


class BacklogExceeded(BrokerError):
    """Too much waits for the topic's subscriptions, and its policy says: nobody begins to write."""


class BacklogHold(BacklogExceeded):
    """The same, where the policy says that writers wait: asking again may help."""


class AuthenticationFailed(BrokerError):
    """Who asks has not shown who it is: no proof, a wrong one, or one that is over."""


class AccessDenied(BrokerError):
    """The authorizer said no."""

    def __init__(self, operation: Operation, resource: Resource) -> None:
        super().__init__(f"{operation.value} on {resource.kind.value} {resource.name!r} is denied")
        self.operation = operation
        self.resource = resource


# -- appending and reading


class InvalidRecord(BrokerError):
    """A batch that breaks the rules of its format, or has messages that its topic does not take."""

    messages: tuple[tuple[int, str], ...] = ()  # which ones, and why; not always told


class CorruptRecord(BrokerError):
    """A batch whose checksum is wrong: it was damaged on the way."""


class InvalidTimestamp(BrokerError):
    """A timestamp, or kind of timestamp, that a producer may not set."""

    messages: tuple[tuple[int, str], ...] = ()  # which ones, and why; not always told


class UnsupportedCompression(BrokerError):
    """A codec that does not exist."""


class TooLarge(BrokerError):
    """A batch above the topic's max.message.bytes."""


class StorageFailed(BrokerError):
    """The disk failed; the process is about to stop."""


class DiskFull(BrokerError):
    """There is no room: reading goes on, writing waits for deletes or retention."""


def failure(error: LogError) -> BrokerError:
    """Say what a refusal of the log means here."""
    if isinstance(error, log_errors.DiskFull):
        return DiskFull(str(error))
    if isinstance(error, log_errors.FrameTooLarge):
        return TooLarge(str(error))
    return StorageFailed(str(error))


# -- producers


class OutOfOrderSequence(BrokerError):
    """A sequence that is neither the next one nor a repeated one."""


class DuplicateSequence(BrokerError):
    """A batch that was written, too long ago to know its offset."""


class StaleProducerEpoch(BrokerError):
    """A newer incarnation of the same producer is at work."""


class ProducerIdsExhausted(BrokerError):
    """No producer id is at hand this moment; the next block is being allocated."""


class ProducerBusy(BrokerError):
    """Another producer has this name, or the topic to itself; it may go away."""


class ProducerFenced(BrokerError):
    """Another producer took the topic for itself: this one is out for good."""


class NotReady(BrokerError):
    """Something is being made or let go of this moment: asking again will help."""


class QuotaExceeded(NotReady):
    """The client has used more than its share: asking again later will help."""


# -- groups


class InvalidGroupName(BrokerError):
    """A group name that no group can have."""


class UnknownMember(BrokerError):
    """Not, or no longer, a member of this group."""


class UnknownGroup(UnknownMember):
    """There is no such group, or none of the kind that was meant."""


class IllegalGeneration(BrokerError):
    """The member speaks of another generation of the group than the present one."""


class FencedMemberEpoch(IllegalGeneration):
    """The member's epoch is not the one we know: it gives up all it has and joins again."""


class StaleMemberEpoch(IllegalGeneration):
    """The member speaks of an epoch that it has left, or will be in."""


class RebalanceInProgress(BrokerError):
    """The group is finding a new assignment: join again."""


class InconsistentProtocol(BrokerError):
    """The group works by another kind of protocol, or has no protocol in common with the member."""


class InconsistentMember(InconsistentProtocol):
    """A member wants to read in another way than the others of its group; `what` is other."""

    def __init__(self, what: str, message: str) -> None:
        super().__init__(message)
        self.what = what


class InvalidSessionTimeout(BrokerError):
    """A session timeout outside the limits."""


class MemberIdRequired(BrokerError):
    """Join again under this member id: an answer that got lost leaves no member behind."""

    def __init__(self, member_id: str) -> None:
        super().__init__("join again with the member id given")
        self.member_id = member_id


class FencedInstance(BrokerError):
    """Another process has taken over this static member."""


class UnreleasedInstance(FencedInstance):
    """A living member stands for this instance, and has not said that it goes."""


class UnsupportedAssignor(InconsistentProtocol):
    """An assignor that we do not have."""


class InvalidPattern(InvalidRequest):
    """A pattern of topic names that is none."""


class GroupMaxSize(BrokerError):
    """The group has as many members, or as much metadata, as a group may have."""


class GroupUnavailable(BrokerError):
    """The group is being forgotten, or there is no room for another: look for it again."""


class GroupNotEmpty(InUse):
    """The group has members, so it cannot go, nor can what they may need."""


class GroupReadsTopic(InUse):
    """The group reads the topic, so its positions there stay."""


# -- positions


class MetadataTooLarge(BrokerError):
    """The text beside a committed position is too long."""


class TooManyPositions(BrokerError):
    """The broker keeps as many positions as it may."""


# -- subscriptions


class SubscriptionBusy(BrokerError):
    """Whoever is connected leaves no room for this member: it may try again when they go."""


class KeyRangesTaken(BrokerError):
    """The ranges of keys that a member asks for are no ranges, or somebody else's."""


class UnknownSubscription(BrokerError):
    """There is no such subscription of this partition."""


class NotAllowed(BrokerError):
    """A request that this kind of topic or subscription, or its policies, does not allow."""


# -- schemas


class InvalidSchema(BrokerError):
    """A definition that is none, or a type of schema that is not kept."""


class IncompatibleSchema(BrokerError):
    """A schema that does not go with those of the topic, or none where there must be one."""


class UnknownSchema(BrokerError):
    """The topic has no such schema."""


def _every() -> tuple[type[BrokerError], ...]:
    found: list[type[BrokerError]] = []
    waiting = [BrokerError]
    while waiting:
        kind = waiting.pop()
        found.append(kind)
        waiting.extend(kind.__subclasses__())
    return tuple(found)


EVERY = _every()
