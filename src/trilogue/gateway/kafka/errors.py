"""The Kafka error code of every exception of the layers below.

The table is total: tests walk every BrokerError, EntryError, LogError and MetaError. A class that
is not in the table has the code of its nearest base class. Only the root classes mean "unknown
server error", and one of these at run time is a bug here.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from trilogue.broker import errors as broker
from trilogue.broker.access.authorizer import ResourceKind
from trilogue.entry import entry
from trilogue.gateway.error_mapping import EXPECTED_ERRORS, find_code
from trilogue.log import errors as storage
from trilogue.meta import errors as meta
from trilogue.wire.kafka.errors import ErrorCode

CODES: dict[type[BaseException], ErrorCode] = {
    # roots
    broker.BrokerError: ErrorCode.UNKNOWN_SERVER_ERROR,
    storage.LogError: ErrorCode.UNKNOWN_SERVER_ERROR,
    meta.MetaError: ErrorCode.UNKNOWN_SERVER_ERROR,
    entry.EntryError: ErrorCode.CORRUPT_MESSAGE,
    # topics and partitions
    broker.UnknownTopic: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    broker.UnknownTopicId: ErrorCode.UNKNOWN_TOPIC_ID,
    broker.TopicExists: ErrorCode.TOPIC_ALREADY_EXISTS,
    broker.UnknownNamespace: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    broker.NamespaceExists: ErrorCode.INVALID_REQUEST,
    broker.InUse: ErrorCode.POLICY_VIOLATION,
    broker.ConcurrentChange: ErrorCode.REQUEST_TIMED_OUT,  # another change won: the client retries
    broker.InvalidName: ErrorCode.INVALID_TOPIC_EXCEPTION,
    broker.InvalidPartitions: ErrorCode.INVALID_PARTITIONS,
    broker.ReplicationFactor: ErrorCode.INVALID_REPLICATION_FACTOR,
    broker.InvalidAssignment: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    broker.InvalidSetting: ErrorCode.INVALID_CONFIG,
    broker.InvalidRequest: ErrorCode.INVALID_REQUEST,
    broker.NotServed: ErrorCode.INVALID_REQUEST,
    broker.PolicyViolation: ErrorCode.POLICY_VIOLATION,
    broker.OffsetOutOfRange: ErrorCode.OFFSET_OUT_OF_RANGE,
    broker.TopicTerminated: ErrorCode.POLICY_VIOLATION,  # not retriable
    broker.BacklogExceeded: ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    broker.BacklogHold: ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    broker.NotOwner: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    broker.NotCoordinator: ErrorCode.NOT_COORDINATOR,
    broker.StaleEpoch: ErrorCode.FENCED_LEADER_EPOCH,
    broker.UnknownEpoch: ErrorCode.UNKNOWN_LEADER_EPOCH,
    # appending and reading
    broker.InvalidRecord: ErrorCode.INVALID_RECORD,
    broker.CorruptRecord: ErrorCode.CORRUPT_MESSAGE,
    broker.InvalidTimestamp: ErrorCode.INVALID_TIMESTAMP,
    broker.UnsupportedCompression: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    broker.TooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    broker.StorageFailed: ErrorCode.KAFKA_STORAGE_ERROR,
    broker.DiskFull: ErrorCode.KAFKA_STORAGE_ERROR,
    entry.CorruptEntry: ErrorCode.CORRUPT_MESSAGE,
    entry.InvalidEntry: ErrorCode.INVALID_RECORD,
    entry.UnsupportedCompression: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    storage.StorageFailed: ErrorCode.KAFKA_STORAGE_ERROR,
    storage.CorruptLog: ErrorCode.CORRUPT_MESSAGE,  # consumers stay silent about 56
    storage.NewerFormat: ErrorCode.KAFKA_STORAGE_ERROR,
    storage.AlreadyLocked: ErrorCode.KAFKA_STORAGE_ERROR,
    storage.OffsetOutOfRange: ErrorCode.OFFSET_OUT_OF_RANGE,
    storage.UnknownPartition: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    storage.FrameTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    storage.DiskFull: ErrorCode.KAFKA_STORAGE_ERROR,
    storage.StorageUnavailable: ErrorCode.KAFKA_STORAGE_ERROR,
    storage.ObjectMissing: ErrorCode.CORRUPT_MESSAGE,
    # producers
    broker.OutOfOrderSequence: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    broker.DuplicateSequence: ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    broker.StaleProducerEpoch: ErrorCode.INVALID_PRODUCER_EPOCH,
    broker.ProducerIdsExhausted: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    # this one and the next occur for Pulsar producers only
    broker.ProducerBusy: ErrorCode.CONCURRENT_TRANSACTIONS,
    broker.InvalidTransactionState: ErrorCode.INVALID_TXN_STATE,
    broker.InvalidTransactionTimeout: ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    broker.ConcurrentTransactions: ErrorCode.CONCURRENT_TRANSACTIONS,
    broker.UnknownProducerMapping: ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    broker.UnknownTransaction: ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    broker.TransactionConflict: ErrorCode.INVALID_TXN_STATE,
    broker.TooManyTransactions: ErrorCode.POLICY_VIOLATION,
    broker.ProducerFenced: ErrorCode.PRODUCER_FENCED,
    broker.NotReady: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    broker.MetadataUnavailable: ErrorCode.REQUEST_TIMED_OUT,
    broker.QuotaExceeded: ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    # groups
    broker.InvalidGroupName: ErrorCode.INVALID_GROUP_ID,
    broker.UnknownMember: ErrorCode.UNKNOWN_MEMBER_ID,
    broker.UnknownGroup: ErrorCode.GROUP_ID_NOT_FOUND,
    broker.IllegalGeneration: ErrorCode.ILLEGAL_GENERATION,
    broker.FencedMemberEpoch: ErrorCode.FENCED_MEMBER_EPOCH,
    broker.StaleMemberEpoch: ErrorCode.STALE_MEMBER_EPOCH,
    broker.RebalanceInProgress: ErrorCode.REBALANCE_IN_PROGRESS,
    broker.InconsistentProtocol: ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    broker.InvalidSessionTimeout: ErrorCode.INVALID_SESSION_TIMEOUT,
    broker.MemberIdRequired: ErrorCode.MEMBER_ID_REQUIRED,
    broker.FencedInstance: ErrorCode.FENCED_INSTANCE_ID,
    broker.UnreleasedInstance: ErrorCode.UNRELEASED_INSTANCE_ID,
    broker.UnsupportedAssignor: ErrorCode.UNSUPPORTED_ASSIGNOR,
    broker.InvalidPattern: ErrorCode.INVALID_REGULAR_EXPRESSION,
    broker.InvalidTopology: ErrorCode.STREAMS_INVALID_TOPOLOGY,
    broker.GroupMaxSize: ErrorCode.GROUP_MAX_SIZE_REACHED,
    broker.GroupUnavailable: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    broker.GroupNotEmpty: ErrorCode.NON_EMPTY_GROUP,
    broker.GroupReadsTopic: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
    broker.InvalidRecordState: ErrorCode.INVALID_RECORD_STATE,
    # positions
    broker.MetadataTooLarge: ErrorCode.OFFSET_METADATA_TOO_LARGE,
    broker.TooManyPositions: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    # subscriptions of other protocols
    broker.SubscriptionBusy: ErrorCode.INVALID_REQUEST,
    broker.KeyRangesTaken: ErrorCode.INVALID_REQUEST,
    broker.UnknownSubscription: ErrorCode.GROUP_ID_NOT_FOUND,
    broker.NotAllowed: ErrorCode.INVALID_REQUEST,
    # schemas of other protocols
    broker.InvalidSchema: ErrorCode.INVALID_REQUEST,
    broker.IncompatibleSchema: ErrorCode.INVALID_REQUEST,
    broker.UnknownSchema: ErrorCode.RESOURCE_NOT_FOUND,
    broker.AuthenticationFailed: ErrorCode.SASL_AUTHENTICATION_FAILED,
    broker.TooManyLogins: ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    # meta
    # a concurrent change won: the client retries
    meta.PreconditionFailed: ErrorCode.REQUEST_TIMED_OUT,
    meta.InvalidChange: ErrorCode.UNKNOWN_SERVER_ERROR,
    meta.TooManyChanges: ErrorCode.REQUEST_TIMED_OUT,  # the queue is full: the client retries
    meta.NoIdsLeft: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    meta.Fenced: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    meta.Unavailable: ErrorCode.REQUEST_TIMED_OUT,
    TimeoutError: ErrorCode.REQUEST_TIMED_OUT,
}

DENIED_CODES: dict[ResourceKind, ErrorCode] = {
    ResourceKind.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceKind.NAMESPACE: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceKind.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceKind.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceKind.TRANSACTION: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceKind.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceKind.USER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}


class ErrorReply(NamedTuple):
    """The error code and error message of a refused request."""

    code: ErrorCode
    text: str


CLUSTER_DENIED = ErrorReply(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "this is not allowed")

# What a handler catches and turns into a code; any other exception is a bug and closes the
# connection.
EXPECTED = EXPECTED_ERRORS


def to_error_code(problem: BaseException) -> ErrorCode:
    """Return the code of an EXPECTED exception."""
    if isinstance(problem, broker.AccessDenied):
        return DENIED_CODES[problem.resource.kind]
    code = find_code(CODES, problem)
    return ErrorCode.UNKNOWN_SERVER_ERROR if code is None else code


class ErrorResult(Protocol):
    """A result in a response that has an error code and an error message."""

    error_code: int
    error_message: str | None


def set_error(result: ErrorResult, problem: BaseException) -> None:
    """Set the error code and message of an EXPECTED exception."""
    result.error_code = to_error_code(problem)
    result.error_message = str(problem) or None
