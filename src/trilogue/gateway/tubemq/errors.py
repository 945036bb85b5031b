"""The TubeMQ error code of every exception of the rooms below.

The table is total: tests check every BrokerError, EntryError, LogError and MetaError. A class that
is not in the table has the code of its nearest base class that is.

What clients do with a code matters more than its name: after 503 a producer avoids the broker for a
while; 411, 412 and 415 cost a consumer the partition; 450 and 455 end its attempts to register
(docs/reference/wire/tubemq.md).
"""

from __future__ import annotations

from trilogue.broker import errors as broker
from trilogue.entry import entry
from trilogue.entry.tubemq.tubemq_entry import WrongChecksum
from trilogue.gateway.error_mapping import EXPECTED_ERRORS, ProtocolError, find_code
from trilogue.log import errors as storage
from trilogue.meta import errors as meta
from trilogue.wire.tubemq.errors import TubeCode

TEXT_MAX = 4_096  # characters of an error text


class TubeRequestError(ProtocolError[TubeCode]):
    """An error that exists in this protocol only, with its code."""


CODES: dict[type[BaseException], TubeCode] = {
    # roots
    broker.BrokerError: TubeCode.INTERNAL_ERROR,
    storage.LogError: TubeCode.SERVICE_UNAVAILABLE,
    meta.MetaError: TubeCode.SERVICE_UNAVAILABLE,
    entry.EntryError: TubeCode.BAD_REQUEST,
    # topics and partitions
    broker.UnknownTopic: TubeCode.FORBIDDEN,  # as real brokers answer sends and registrations
    broker.UnknownTopicId: TubeCode.FORBIDDEN,
    broker.TopicExists: TubeCode.BAD_REQUEST,
    broker.PartitionRequired: TubeCode.FORBIDDEN,
    broker.UnknownNamespace: TubeCode.FORBIDDEN,
    broker.NamespaceExists: TubeCode.BAD_REQUEST,
    broker.InUse: TubeCode.SERVICE_UNAVAILABLE,
    broker.ConcurrentChange: TubeCode.SERVICE_UNAVAILABLE,
    broker.InvalidName: TubeCode.BAD_REQUEST,
    broker.InvalidPartitions: TubeCode.BAD_REQUEST,
    broker.ReplicationFactor: TubeCode.BAD_REQUEST,
    broker.InvalidAssignment: TubeCode.BAD_REQUEST,
    broker.InvalidSetting: TubeCode.BAD_REQUEST,
    broker.InvalidRequest: TubeCode.BAD_REQUEST,
    broker.NotServed: TubeCode.FORBIDDEN,
    broker.PolicyViolation: TubeCode.FORBIDDEN,
    broker.OffsetOutOfRange: TubeCode.MOVED,
    broker.NotOwner: TubeCode.SERVICE_UNAVAILABLE,
    broker.NotCoordinator: TubeCode.SERVICE_UNAVAILABLE,
    broker.StaleEpoch: TubeCode.SERVICE_UNAVAILABLE,
    broker.UnknownEpoch: TubeCode.SERVICE_UNAVAILABLE,
    broker.TopicTerminated: TubeCode.PARTITION_NOT_PUBLISHABLE,
    broker.BacklogExceeded: TubeCode.FORBIDDEN,
    broker.BacklogHold: TubeCode.SERVICE_UNAVAILABLE,
    broker.AuthenticationFailed: TubeCode.CERTIFICATE_FAILURE,
    broker.TooManyLogins: TubeCode.SERVICE_UNAVAILABLE,
    broker.AccessDenied: TubeCode.CERTIFICATE_FAILURE,
    # appending and reading
    broker.InvalidRecord: TubeCode.BAD_REQUEST,
    broker.CorruptRecord: TubeCode.FORBIDDEN,  # a wrong checkSum
    broker.InvalidTimestamp: TubeCode.BAD_REQUEST,
    broker.UnsupportedCompression: TubeCode.BAD_REQUEST,
    broker.TooLarge: TubeCode.BAD_REQUEST,
    broker.StorageFailed: TubeCode.SERVICE_UNAVAILABLE,
    broker.DiskFull: TubeCode.SERVICE_UNAVAILABLE,
    entry.CorruptEntry: TubeCode.FORBIDDEN,
    entry.InvalidEntry: TubeCode.BAD_REQUEST,
    entry.UnsupportedCompression: TubeCode.BAD_REQUEST,
    WrongChecksum: TubeCode.FORBIDDEN,
    storage.OffsetOutOfRange: TubeCode.MOVED,
    storage.UnknownPartition: TubeCode.FORBIDDEN,
    storage.FrameTooLarge: TubeCode.BAD_REQUEST,
    # producers: TubeMQ's have no sequence numbers
    broker.OutOfOrderSequence: TubeCode.BAD_REQUEST,
    broker.DuplicateSequence: TubeCode.BAD_REQUEST,
    broker.StaleProducerEpoch: TubeCode.BAD_REQUEST,
    broker.ProducerIdsExhausted: TubeCode.SERVICE_UNAVAILABLE,
    broker.ProducerBusy: TubeCode.FORBIDDEN,
    broker.InvalidTransactionState: TubeCode.FORBIDDEN,
    broker.InvalidTransactionTimeout: TubeCode.FORBIDDEN,
    broker.ConcurrentTransactions: TubeCode.SERVICE_UNAVAILABLE,
    broker.UnknownProducerMapping: TubeCode.FORBIDDEN,
    broker.UnknownTransaction: TubeCode.FORBIDDEN,
    broker.TransactionConflict: TubeCode.FORBIDDEN,
    broker.TooManyTransactions: TubeCode.FORBIDDEN,
    broker.ProducerFenced: TubeCode.FORBIDDEN,
    broker.NotReady: TubeCode.SERVICE_UNAVAILABLE,
    broker.MetadataUnavailable: TubeCode.SERVICE_UNAVAILABLE,
    # groups of other protocols, subscriptions
    broker.InvalidGroupName: TubeCode.BAD_REQUEST,
    broker.UnknownMember: TubeCode.NO_NODE,
    broker.IllegalGeneration: TubeCode.NO_NODE,
    broker.RebalanceInProgress: TubeCode.NOT_READY,
    broker.InconsistentProtocol: TubeCode.OTHER_CONSUME_TYPE,
    broker.InvalidSessionTimeout: TubeCode.BAD_REQUEST,
    broker.MemberIdRequired: TubeCode.BAD_REQUEST,
    broker.FencedInstance: TubeCode.NO_NODE,
    broker.GroupMaxSize: TubeCode.FORBIDDEN,
    broker.GroupUnavailable: TubeCode.SERVICE_UNAVAILABLE,
    broker.InvalidRecordState: TubeCode.BAD_REQUEST,
    broker.SubscriptionBusy: TubeCode.PARTITION_OCCUPIED,
    broker.KeyRangesTaken: TubeCode.BAD_REQUEST,
    broker.UnknownSubscription: TubeCode.NO_NODE,
    broker.NotAllowed: TubeCode.FORBIDDEN,
    # positions
    broker.MetadataTooLarge: TubeCode.BAD_REQUEST,
    broker.TooManyPositions: TubeCode.FORBIDDEN,
    # schemas
    broker.InvalidSchema: TubeCode.BAD_REQUEST,
    broker.IncompatibleSchema: TubeCode.BAD_REQUEST,
    broker.UnknownSchema: TubeCode.BAD_REQUEST,
    # meta
    meta.PreconditionFailed: TubeCode.SERVICE_UNAVAILABLE,  # a concurrent change: retry
    meta.TooManyChanges: TubeCode.SERVICE_UNAVAILABLE,
    meta.NoIdsLeft: TubeCode.SERVICE_UNAVAILABLE,
    meta.Fenced: TubeCode.SERVICE_UNAVAILABLE,
    meta.Unavailable: TubeCode.SERVICE_UNAVAILABLE,
    TimeoutError: TubeCode.SERVICE_UNAVAILABLE,
}

# Exceptions of handlers that become a code; any other is a bug and ends the connection.
EXPECTED = (TubeRequestError, *EXPECTED_ERRORS)


def code_of(problem: BaseException) -> TubeCode:
    """Return the code of one of the EXPECTED exceptions."""
    if isinstance(problem, TubeRequestError):
        return problem.code
    code = find_code(CODES, problem)
    return TubeCode.INTERNAL_ERROR if code is None else code
