"""Every reason for which a room below says no, as the code that a TubeMQ client understands.

The table is total: tests walk every BrokerError, EntryError, LogError and MetaError there is. A
class that is not in the table has the code of its nearest base class that is.

What clients do with a code decides more than its name (wire facts, section 9): after 503 a producer
avoids the broker for a while; 411, 412 and 415 cost a consumer the partition; 450 and 455 end its
tries to register.
"""

from __future__ import annotations

from trilogue.broker import errors as broker
from trilogue.entry import entry
from trilogue.entry.tubemq_entry import WrongChecksum
from trilogue.gateway.refusals import REASONS, ProtocolRefusal, nearest_code
from trilogue.log import errors as storage
from trilogue.meta import errors as meta
from trilogue.wire.tubemq.errors import TubeCode

TEXT_MAX = 4_096  # characters of what a refusal says


class Refusal(ProtocolRefusal[TubeCode]):
    """What only this protocol says no to, with the code that it has for that."""


CODES: dict[type[BaseException], TubeCode] = {
    # roots
    broker.BrokerError: TubeCode.INTERNAL_ERROR,
    storage.LogError: TubeCode.SERVICE_UNAVAILABLE,
    meta.MetaError: TubeCode.SERVICE_UNAVAILABLE,
    entry.EntryError: TubeCode.BAD_REQUEST,
    # topics and partitions
    broker.UnknownTopic: TubeCode.FORBIDDEN,  # as a real broker says it of sends and registers
    broker.UnknownTopicId: TubeCode.FORBIDDEN,
    broker.TopicExists: TubeCode.BAD_REQUEST,
    broker.NeedsPartition: TubeCode.FORBIDDEN,
    broker.UnknownNamespace: TubeCode.FORBIDDEN,
    broker.NamespaceExists: TubeCode.BAD_REQUEST,
    broker.InUse: TubeCode.SERVICE_UNAVAILABLE,
    broker.Outrun: TubeCode.SERVICE_UNAVAILABLE,
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
    broker.StaleEpoch: TubeCode.SERVICE_UNAVAILABLE,
    broker.UnknownEpoch: TubeCode.SERVICE_UNAVAILABLE,
    broker.TopicTerminated: TubeCode.PARTITION_NOT_PUBLISHABLE,
    broker.BacklogExceeded: TubeCode.FORBIDDEN,
    broker.BacklogHold: TubeCode.SERVICE_UNAVAILABLE,
    broker.AuthenticationFailed: TubeCode.CERTIFICATE_FAILURE,
    broker.AccessDenied: TubeCode.CERTIFICATE_FAILURE,
    # appending and reading
    broker.InvalidRecord: TubeCode.BAD_REQUEST,
    broker.CorruptRecord: TubeCode.FORBIDDEN,  # wire fact: a wrong checkSum
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
    # producers: none here has a sequence
    broker.OutOfOrderSequence: TubeCode.BAD_REQUEST,
    broker.DuplicateSequence: TubeCode.BAD_REQUEST,
    broker.StaleProducerEpoch: TubeCode.BAD_REQUEST,
    broker.ProducerIdsExhausted: TubeCode.SERVICE_UNAVAILABLE,
    broker.ProducerBusy: TubeCode.FORBIDDEN,
    broker.ProducerFenced: TubeCode.FORBIDDEN,
    broker.NotReady: TubeCode.SERVICE_UNAVAILABLE,
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
    meta.PreconditionFailed: TubeCode.SERVICE_UNAVAILABLE,  # somebody was faster: ask again
    meta.TooManyCommits: TubeCode.SERVICE_UNAVAILABLE,
    meta.NoIdsLeft: TubeCode.SERVICE_UNAVAILABLE,
    meta.Fenced: TubeCode.SERVICE_UNAVAILABLE,
    TimeoutError: TubeCode.SERVICE_UNAVAILABLE,
}

# What a handler may raise and is turned into a code; anything else is a mistake and ends the
# connection.
EXPECTED = (Refusal, *REASONS)


def code_of(problem: BaseException) -> TubeCode:
    """The code for one of the EXPECTED errors."""
    if isinstance(problem, Refusal):
        return problem.code
    code = nearest_code(CODES, problem)
    return TubeCode.INTERNAL_ERROR if code is None else code
