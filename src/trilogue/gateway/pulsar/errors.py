"""The ServerError code of each error of the rooms below, and the SEND_ERROR frames for them.

The table is total: tests walk every BrokerError, EntryError, LogError and MetaError. A class that
is not in the table has the code of its nearest base class that is.

A code is chosen by what clients do with it more than by its name: after ServiceNotReady,
MetadataError and PersistenceError they look the topic up and try again, NotAllowedError and
TopicNotFound they raise in the application at once.
"""

from __future__ import annotations

from collections.abc import Iterable

from trilogue.broker import errors as broker
from trilogue.entry import entry
from trilogue.gateway.error_mapping import EXPECTED_ERRORS, ProtocolError, find_code
from trilogue.gateway.stream import Buffer
from trilogue.log import errors as storage
from trilogue.meta import errors as meta
from trilogue.wire.pulsar.errors import ServerError
from trilogue.wire.pulsar.frame import encode_command
from trilogue.wire.pulsar.message_codec import read_command_type
from trilogue.wire.pulsar.pulsar_pb2 import BaseCommand


class PulsarProtocolError(ProtocolError[ServerError]):
    """A request that only the Pulsar gateway refuses, with the code for that."""


CODES: dict[type[BaseException], ServerError] = {
    # roots
    broker.BrokerError: ServerError.UnknownError,
    storage.LogError: ServerError.PersistenceError,
    meta.MetaError: ServerError.MetadataError,
    entry.EntryError: ServerError.ChecksumError,
    # topics and partitions
    broker.UnknownTopic: ServerError.TopicNotFound,
    broker.UnknownTopicId: ServerError.TopicNotFound,
    broker.TopicExists: ServerError.ServiceNotReady,  # another client created it first
    broker.PartitionRequired: ServerError.NotAllowedError,
    broker.UnknownNamespace: ServerError.TopicNotFound,
    broker.NamespaceExists: ServerError.NotAllowedError,
    broker.InUse: ServerError.NotAllowedError,
    broker.ConcurrentChange: ServerError.ServiceNotReady,
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
    broker.NotCoordinator: ServerError.TransactionCoordinatorNotFound,
    broker.StaleEpoch: ServerError.ServiceNotReady,
    broker.UnknownEpoch: ServerError.ServiceNotReady,
    broker.TopicTerminated: ServerError.TopicTerminatedError,
    broker.BacklogExceeded: ServerError.ProducerBlockedQuotaExceededException,
    broker.BacklogHold: ServerError.ProducerBlockedQuotaExceededError,
    broker.AccessDenied: ServerError.AuthorizationError,
    broker.AuthenticationFailed: ServerError.AuthenticationError,
    broker.TooManyLogins: ServerError.ServiceNotReady,
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
    broker.InvalidTransactionState: ServerError.InvalidTxnStatus,
    broker.InvalidTransactionTimeout: ServerError.NotAllowedError,
    broker.ConcurrentTransactions: ServerError.ServiceNotReady,
    broker.UnknownProducerMapping: ServerError.TransactionNotFound,
    broker.UnknownTransaction: ServerError.TransactionNotFound,
    broker.TransactionConflict: ServerError.TransactionConflict,
    broker.TooManyTransactions: ServerError.TooManyRequests,
    broker.ProducerFenced: ServerError.ProducerFenced,
    broker.NotReady: ServerError.ServiceNotReady,
    broker.MetadataUnavailable: ServerError.ServiceNotReady,
    # groups: no Pulsar client is a member of one
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
    broker.InvalidRecordState: ServerError.NotAllowedError,
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
    meta.PreconditionFailed: ServerError.ServiceNotReady,  # another change came first
    meta.TooManyChanges: ServerError.TooManyRequests,
    meta.NoIdsLeft: ServerError.ServiceNotReady,
    meta.Fenced: ServerError.ServiceNotReady,
    meta.Unavailable: ServerError.ServiceNotReady,
    TimeoutError: ServerError.ServiceNotReady,
}

# The errors that a handler may raise or turn into a code; any other ends the connection.
EXPECTED = (PulsarProtocolError, *EXPECTED_ERRORS)


def code_of(problem: BaseException) -> ServerError:
    """Return the code of one of the EXPECTED errors."""
    if isinstance(problem, PulsarProtocolError):
        return problem.code
    code = find_code(CODES, problem)
    return ServerError.UnknownError if code is None else code


def encode_send_error(producer_id: int, sequence_id: int, problem: BaseException) -> bytes:
    """Return the frame of a SEND_ERROR; its code decides what clients do next (see above)."""
    code = code_of(problem)
    text = str(problem) or code.name
    if code is ServerError.ChecksumError:
        text = f"Checksum failed on the broker: {text}"
    return encode_command(
        BaseCommand(
            type=BaseCommand.SEND_ERROR,
            send_error={
                "producer_id": producer_id,
                "sequence_id": sequence_id,
                "error": code,
                "message": text,
            },
        )
    )


def replace_receipts(receipts: Iterable[Buffer], problem: BaseException) -> list[Buffer]:
    """Return SEND_ERROR frames in place of receipts; errors among them stay."""
    replaced: list[Buffer] = []
    for receipt in map(bytes, receipts):
        if read_command_type(receipt[4:]) == BaseCommand.SEND_RECEIPT:
            sent = BaseCommand.FromString(receipt[8:]).send_receipt
            replaced.append(encode_send_error(sent.producer_id, sent.sequence_id, problem))
        else:
            replaced.append(receipt)
    return replaced
