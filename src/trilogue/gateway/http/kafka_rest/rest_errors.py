"""The errors of the REST proxy, and those of the client inside as one."""

from __future__ import annotations

from typing import Final

from trilogue.client.errors import ClientError, TimedOut
from trilogue.client.kafka.errors import AuthenticationFailed, KafkaError
from trilogue.wire.kafka.errors import ErrorCode

TOPIC_NOT_FOUND: Final = 40401
PARTITION_NOT_FOUND: Final = 40402
INSTANCE_NOT_FOUND: Final = 40403
FORMAT_MISMATCH: Final = 40601
INSTANCE_EXISTS: Final = 40902
ILLEGAL_STATE: Final = 40903
NO_PAYLOAD_VALUE: Final = 42209
NO_JSON_VALUE: Final = 42208
INVALID_SCHEMA: Final = 42205
INVALID_CONSUMER: Final = 42204
UNSERIALIZABLE: Final = 42207
KEY_SCHEMA_MISSING: Final = 42201
VALUE_SCHEMA_MISSING: Final = 42202
INVALID_REQUEST: Final = 422
FORBIDDEN: Final = 40301
UNAUTHORIZED: Final = 40101
KAFKA_ERROR: Final = 50002
TOO_MANY: Final = 42901

CODES: Final[dict[int, int]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: TOPIC_NOT_FOUND,
    ErrorCode.INVALID_TOPIC_EXCEPTION: 42202,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: FORBIDDEN,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: FORBIDDEN,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: FORBIDDEN,
    ErrorCode.TOPIC_ALREADY_EXISTS: 40002,
    ErrorCode.INVALID_PARTITIONS: 40002,
    ErrorCode.INVALID_REPLICATION_FACTOR: 40002,
    ErrorCode.INVALID_CONFIG: 40002,
    ErrorCode.POLICY_VIOLATION: 40002,
}


class RestError(Exception):
    """An error with a code: an HTTP status, or one and two digits more."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


def error_of(problem: ClientError) -> RestError:
    """Return the error of the proxy for one of the client inside."""
    if isinstance(problem, AuthenticationFailed):
        return RestError(UNAUTHORIZED, str(problem))
    if isinstance(problem, KafkaError):
        return RestError(CODES.get(problem.code, KAFKA_ERROR), str(problem))
    if isinstance(problem, TimedOut):
        return RestError(50003, str(problem))
    return RestError(KAFKA_ERROR, str(problem))
