"""Every reason for which a room below says no, as the code that a Pulsar client understands.

The table is total: tests walk every BrokerError, EntryError, LogError and MetaError there is. A
class that is not in the table has the code of its nearest base class that is.

What clients do with a code decides more than its name: ServiceNotReady, MetadataError and
PersistenceError are tried again after a new lookup, NotAllowedError and TopicNotFound are told to
the application at once.
"""

from __future__ import annotations

from trilogue.broker import errors as broker
from trilogue.entry import entry
from trilogue.gateway.refusals import REASONS, ProtocolRefusal, nearest_code
from trilogue.log import errors as storage
from trilogue.meta import errors as meta
from trilogue.wire.pulsar.errors import ServerError


class Refusal(ProtocolRefusal[ServerError]):
    """What only this protocol says no to, with the code that it has for that."""


CODES: dict[type[BaseException], ServerError] = {
    # roots
    broker.BrokerError: ServerError.UnknownError,
    storage.LogError: ServerError.PersistenceError,
    meta.MetaError: ServerError.MetadataError,
    entry.EntryError: ServerError.ChecksumError,
    # topics and partitions
    broker.UnknownTopic: ServerError.TopicNotFound,
    broker.UnknownTopicId: ServerError.TopicNotFound,
    broker.TopicExists: ServerError.ServiceNotReady,  # somebody was faster: look again
    broker.NeedsPartition: ServerError.NotAllowedError,
    broker.UnknownNamespace: ServerError.TopicNotFound,
    broker.NamespaceExists: ServerError.NotAllowedError,
    broker.InUse: ServerError.NotAllowedError,
    broker.Outrun: ServerError.ServiceNotReady,
    broker.InvalidName: ServerError.InvalidTopicName,
    broker.InvalidPartitions: ServerError.NotAllowedError,
    broker.ReplicationFactor: ServerError.NotAllowedError,
    broker.InvalidAssignment: ServerError.NotAllowedError,
    broker.InvalidSetting: ServerError.NotAllowedError,
    broker.InvalidRequest: ServerError.NotAllowedError,
    broker.NotServed: ServerError.NotAllowedError,
    broker.PolicyViolation: ServerError.NotAllowedError,
    broker.OffsetOutOfRange: ServerError.MetadataError,
    broker.NotOwner: ServerError.ServiceNotReady,
    broker.StaleEpoch: ServerError.ServiceNotReady,
    broker.UnknownEpoch: ServerError.ServiceNotReady,
    broker.TopicTerminated: ServerError.TopicTerminatedError,
    broker.BacklogExceeded: ServerError.ProducerBlockedQuotaExceededException,
    broker.BacklogHold: ServerError.ProducerBlockedQuotaExceededError,
    broker.AccessDenied: ServerError.AuthorizationError,
    broker.AuthenticationFailed: ServerError.AuthenticationError,
    # appending and reading
    broker.InvalidRecord: ServerError.MetadataError,
    broker.CorruptRecord: ServerError.ChecksumError,
    broker.InvalidTimestamp: ServerError.MetadataError,
    broker.UnsupportedCompression: ServerError.NotAllowedError,
    broker.TooLarge: ServerError.NotAllowedError,
    broker.StorageFailed: ServerError.PersistenceError,
    broker.DiskFull: ServerError.PersistenceError,
    entry.CorruptEntry: ServerError.ChecksumError,
    entry.InvalidEntry: ServerError.MetadataError,
    entry.UnsupportedCompression: ServerError.NotAllowedError,
    storage.OffsetOutOfRange: ServerError.MetadataError,
    storage.UnknownPartition: ServerError.TopicNotFound,
    storage.FrameTooLarge: ServerError.NotAllowedError,
    # producers
    broker.OutOfOrderSequence: ServerError.MetadataError,
    broker.DuplicateSequence: ServerError.MetadataError,
    broker.StaleProducerEpoch: ServerError.ProducerFenced,
    broker.ProducerIdsExhausted: ServerError.ServiceNotReady,
    broker.ProducerBusy: ServerError.ProducerBusy,
    broker.ProducerFenced: ServerError.ProducerFenced,
    broker.NotReady: ServerError.ServiceNotReady,
    # groups: no Pulsar client is in one
    broker.InvalidGroupName: ServerError.NotAllowedError,
    broker.UnknownMember: ServerError.ConsumerNotFound,
    broker.IllegalGeneration: ServerError.ConsumerNotFound,
    broker.RebalanceInProgress: ServerError.ServiceNotReady,
    broker.InconsistentProtocol: ServerError.NotAllowedError,
    broker.InvalidSessionTimeout: ServerError.NotAllowedError,
    broker.MemberIdRequired: ServerError.NotAllowedError,
    broker.FencedInstance: ServerError.ConsumerBusy,
    broker.GroupMaxSize: ServerError.ConsumerBusy,
    broker.GroupUnavailable: ServerError.ServiceNotReady,
    # subscriptions
    broker.SubscriptionBusy: ServerError.ConsumerBusy,
    broker.KeyRangesTaken: ServerError.ConsumerAssignError,
    broker.UnknownSubscription: ServerError.SubscriptionNotFound,
    broker.NotAllowed: ServerError.NotAllowedError,
    # positions
    broker.MetadataTooLarge: ServerError.NotAllowedError,
    broker.TooManyPositions: ServerError.NotAllowedError,
    # schemas
    broker.InvalidSchema: ServerError.IncompatibleSchema,
    broker.IncompatibleSchema: ServerError.IncompatibleSchema,
    broker.UnknownSchema: ServerError.TopicNotFound,
    # meta
    meta.PreconditionFailed: ServerError.ServiceNotReady,  # somebody was faster: ask again
    meta.TooManyCommits: ServerError.TooManyRequests,
    meta.NoIdsLeft: ServerError.ServiceNotReady,
    meta.Fenced: ServerError.ServiceNotReady,
    TimeoutError: ServerError.ServiceNotReady,
}

# What a handler may catch and turn into a code; anything else is a mistake and ends the connection.
EXPECTED = (Refusal, *REASONS)


def code_of(problem: BaseException) -> ServerError:
    """The code for one of the EXPECTED errors."""
    if isinstance(problem, Refusal):
        return problem.code
    code = nearest_code(CODES, problem)
    return ServerError.UnknownError if code is None else code
