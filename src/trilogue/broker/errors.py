"""The reasons for which the broker refuses a request, one class each.

A gateway maps each class to its protocol's own error code. These are expected outcomes of a
request, so they travel inside promises and, in a batch, beside the results of its neighbours.
`ALL_ERRORS` lists them; each gateway's tests check that it has a code for every class.
"""

from __future__ import annotations

from trilogue.broker.access.authorizer import Operation, Resource
from trilogue.log import errors as log_errors
from trilogue.log.errors import LogError


class BrokerError(Exception):
    """A request that the broker refuses; the message is for people and names no secrets."""


# -- topics and partitions


class UnknownTopic(BrokerError):
    """The topic, or this partition of it, does not exist."""


class UnknownTopicId(BrokerError):
    """No topic has this id: it was deleted, or created again under another id."""


class TopicExists(BrokerError):
    """The name belongs to a topic, or to one that is being created."""


class PartitionRequired(UnknownTopic):
    """The topic has numbered partitions, and the request names the topic without one."""


class UnknownNamespace(BrokerError):
    """The tenant or namespace does not exist."""


class NamespaceExists(BrokerError):
    """A tenant or a namespace of this name exists."""


class InUse(BrokerError):
    """It cannot be removed while others depend on it, or a limit on their number is reached."""


class ConcurrentChange(BrokerError):
    """Another change of the same thing came first: decide again on the present state."""


class InvalidName(BrokerError):
    """A name that no topic can have."""


class InternalTopicWrite(InvalidName):
    """The topic is the broker's own: clients read it, and cannot append to it."""


class InvalidPartitions(BrokerError):
    """A number of partitions that is not possible."""


class ReplicationFactor(BrokerError):
    """The request wants more copies than there are nodes."""


class InvalidAssignment(BrokerError):
    """An assignment of partitions that names unknown nodes, or has gaps."""


class InvalidSetting(BrokerError):
    """A setting that is unknown or malformed, or that the broker would not enforce."""


class InvalidRequest(BrokerError):
    """A request that contradicts itself."""


class UnknownUser(InvalidRequest):
    """There is no such user."""


class NotServed(BrokerError):
    """A part of the protocol that is not implemented."""


class NotOwner(BrokerError):
    """Another node owns the partition: `node_id`."""

    def __init__(self, message: str = "", node_id: int = 0) -> None:
        super().__init__(message)
        self.node_id = node_id


class NotCoordinator(BrokerError):
    """Another node coordinates the transactional id."""


class StaleEpoch(BrokerError):
    """The client's leader epoch is older than the partition's: it must refresh its metadata."""


class UnknownEpoch(BrokerError):
    """The client's leader epoch is newer than the partition's."""


class PolicyViolation(BrokerError):
    """The topic's own settings forbid it."""


class OffsetOutOfRange(BrokerError):
    """An offset beyond the end of the partition."""


class TopicTerminated(BrokerError):
    """The topic was terminated: it is read, and accepts no more messages."""


class BacklogExceeded(BrokerError):
    """The backlog of the topic's subscriptions is over its quota: no new producers."""


class BacklogHold(BacklogExceeded):
    """As BacklogExceeded, under the policy that producers wait: a retry may succeed."""


class AuthenticationFailed(BrokerError):
    """The client is not authenticated: no credentials, wrong ones, or expired ones."""


class TooManyLogins(AuthenticationFailed):
    """So many logins wait for a check that this one was not checked: a retry may succeed."""


class AccessDenied(BrokerError):
    """The authorizer denied the operation."""

    def __init__(self, operation: Operation, resource: Resource) -> None:
        super().__init__(f"{operation.value} on {resource.kind.value} {resource.name!r} is denied")
        self.operation = operation
        self.resource = resource


# -- appending and reading


class InvalidRecord(BrokerError):
    """A batch that breaks the rules of its format, or has messages the topic refuses."""

    messages: tuple[tuple[int, str], ...] = ()  # index and reason of each; may be empty


class CorruptRecord(BrokerError):
    """A batch whose checksum is wrong: it was damaged in transit."""


class InvalidTimestamp(BrokerError):
    """A timestamp, or kind of timestamp, that a producer may not set."""

    messages: tuple[tuple[int, str], ...] = ()  # index and reason of each; may be empty


class UnsupportedCompression(BrokerError):
    """An unknown compression codec."""


class TooLarge(BrokerError):
    """A batch above the topic's max.message.bytes."""


class StorageFailed(BrokerError):
    """The disk failed; the process is about to stop."""


class DiskFull(BrokerError):
    """The disk is full: reading goes on, writing waits for deletes or retention."""


def convert_log_error(error: LogError) -> BrokerError:
    """Return the broker's error for an error of the log."""
    if isinstance(error, log_errors.DiskFull):
        return DiskFull(str(error))
    if isinstance(error, log_errors.FrameTooLarge):
        return TooLarge(str(error))
    return StorageFailed(str(error))


# -- producers


class OutOfOrderSequence(BrokerError):
    """A sequence that is neither the next one nor a repeated one."""


class DuplicateSequence(BrokerError):
    """A batch that was written already, too long ago to know its offset."""


class StaleProducerEpoch(BrokerError):
    """A newer incarnation of the same producer is active."""


class ProducerIdsExhausted(BrokerError):
    """No producer id is available at this moment; the next block is being allocated."""


class InvalidTransactionState(BrokerError):
    """The request does not fit the state of the transaction."""


class InvalidTransactionTimeout(BrokerError):
    """A timeout of transactions outside the limits."""


class ConcurrentTransactions(BrokerError):
    """The transaction before is being ended: a retry will succeed."""


class TransactionConflict(BrokerError):
    """A message is acked already, or in another transaction that is open."""


class UnknownTransaction(BrokerError):
    """There is no transaction with this TxnID, or it was forgotten after its end."""


class UnknownProducerMapping(BrokerError):
    """The transactional id is unknown, or belongs to another producer id."""


class TooManyTransactions(BrokerError):
    """A limit on transactional ids, or on what one transaction contains, is reached."""


class ProducerBusy(BrokerError):
    """Another producer has this name, or the topic exclusively; it may disconnect."""


class ProducerFenced(BrokerError):
    """Another producer took the topic exclusively: this one is fenced for good."""


class TransactionAborted(ProducerFenced):
    """The broker has aborted this producer's transaction; after its own abort it may go on."""


class NotReady(BrokerError):
    """Something is being created or released at this moment: a retry will succeed."""


class MetadataUnavailable(NotReady):
    """The store of metadata does not answer: a later retry may succeed."""


class QuotaExceeded(NotReady):
    """The client is over its quota: a later retry will succeed."""


# -- groups


class InvalidGroupName(BrokerError):
    """A group name that no group can have."""


class UnknownMember(BrokerError):
    """Not, or no longer, a member of this group."""


class UnknownGroup(UnknownMember):
    """The group does not exist, or is of another type."""


class IllegalGeneration(BrokerError):
    """The member's generation is not the group's present one."""


class FencedMemberEpoch(IllegalGeneration):
    """The member's epoch is wrong: it gives up its partitions and joins again."""


class StaleMemberEpoch(IllegalGeneration):
    """The member sent an epoch that is not its present one."""


class RebalanceInProgress(BrokerError):
    """The group is computing a new assignment: join again."""


class InconsistentProtocol(BrokerError):
    """The group uses another protocol, or has none in common with the member."""


class InconsistentMember(InconsistentProtocol):
    """The member's subscription differs from that of its group in `what`."""

    def __init__(self, what: str, message: str) -> None:
        super().__init__(message)
        self.what = what


class InvalidSessionTimeout(BrokerError):
    """A session timeout outside the limits."""


class MemberIdRequired(BrokerError):
    """Join again with this member id, so that a lost response leaves no member behind."""

    def __init__(self, member_id: str) -> None:
        super().__init__("join again with the member id given")
        self.member_id = member_id


class FencedInstance(BrokerError):
    """Another process took over this static member."""


class UnreleasedInstance(FencedInstance):
    """An active member has this instance id and has not left."""


class UnsupportedAssignor(InconsistentProtocol):
    """An unknown assignor."""


class InvalidPattern(InvalidRequest):
    """A malformed pattern of topic names."""


class InvalidTopology(InvalidRequest):
    """The topology of a streams application that no topics could fit."""


class GroupMaxSize(BrokerError):
    """The group has as many members, or as much metadata, as a group may have."""


class GroupUnavailable(BrokerError):
    """The group is being removed, or there are too many groups: look it up again."""


class GroupNotEmpty(InUse):
    """The group has members, so neither it nor what they need can be removed."""


class GroupReadsTopic(InUse):
    """The group is subscribed to the topic, so its positions there stay."""


class InvalidRecordState(BrokerError):
    """A record of a share group that this member has not acquired, or no longer has."""


# -- positions


class MetadataTooLarge(BrokerError):
    """The text beside a committed position is too long."""


class TooManyPositions(BrokerError):
    """The limit on stored positions is reached."""


# -- subscriptions


class SubscriptionBusy(BrokerError):
    """The connected consumers leave no room for this one; it may retry when they leave."""


class KeyRangesTaken(BrokerError):
    """The key ranges of a consumer are malformed, or belong to another consumer."""


class UnknownSubscription(BrokerError):
    """The partition has no such subscription."""


class NotAllowed(BrokerError):
    """This type of topic or subscription, or its policies, do not allow the request."""


# -- schemas


class InvalidSchema(BrokerError):
    """A malformed definition, or a type of schema that is not supported."""


class IncompatibleSchema(BrokerError):
    """A schema that is incompatible with the topic's, or a missing one."""


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


ALL_ERRORS = _every()
