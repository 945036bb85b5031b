"""Why a broker says no: the codes of Pulsar's protocol, none of which is newer than 2.8.

A client that does not know a code takes it for UnknownError. Which of our errors becomes which
code is the gateway's affair (gateway/pulsar/errors.py).
"""

from __future__ import annotations

from enum import IntEnum


class ServerError(IntEnum):
    """What went wrong, as a number on the wire; names are the protocol's own."""

    UnknownError = 0
    MetadataError = 1
    PersistenceError = 2
    AuthenticationError = 3
    AuthorizationError = 4
    ConsumerBusy = 5
    ServiceNotReady = 6
    ProducerBlockedQuotaExceededError = 7
    ProducerBlockedQuotaExceededException = 8
    ChecksumError = 9
    UnsupportedVersionError = 10
    TopicNotFound = 11
    SubscriptionNotFound = 12
    ConsumerNotFound = 13
    TooManyRequests = 14
    TopicTerminatedError = 15
    ProducerBusy = 16
    InvalidTopicName = 17
    IncompatibleSchema = 18
    ConsumerAssignError = 19
    TransactionCoordinatorNotFound = 20
    InvalidTxnStatus = 21
    NotAllowedError = 22
    TransactionConflict = 23
    TransactionNotFound = 24
    ProducerFenced = 25
