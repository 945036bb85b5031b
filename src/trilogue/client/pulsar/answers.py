"""The answers to requests, and the refusals among them, in whichever form."""

from __future__ import annotations

from typing import Any, Final

from trilogue.client.pulsar.errors import error_for_code
from trilogue.wire.pulsar.commands import BY_TYPE
from trilogue.wire.pulsar.pulsar_pb2 import (
    BaseCommand,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadataResponse,
)

LOOKUP_FAILED: Final = CommandLookupTopicResponse.Failed
PARTITIONS_FAILED: Final = CommandPartitionedTopicMetadataResponse.Failed
WITH_ERROR: Final = frozenset(
    {
        BaseCommand.ACK_RESPONSE, BaseCommand.NEW_TXN_RESPONSE,
        BaseCommand.ADD_PARTITION_TO_TXN_RESPONSE, BaseCommand.ADD_SUBSCRIPTION_TO_TXN_RESPONSE,
        BaseCommand.END_TXN_RESPONSE, BaseCommand.TC_CLIENT_CONNECT_RESPONSE,
    }
)  # fmt: skip
"""Answers that are refusals when they have an `error`."""
WITH_ERROR_CODE: Final = frozenset(
    {
        BaseCommand.CONSUMER_STATS_RESPONSE,
        BaseCommand.GET_SCHEMA_RESPONSE,
        BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE,
    }
)
"""Those with an `error_code`."""
ANSWERS: Final = WITH_ERROR | WITH_ERROR_CODE | {
    BaseCommand.SUCCESS, BaseCommand.ERROR, BaseCommand.PARTITIONED_METADATA_RESPONSE,
    BaseCommand.LOOKUP_RESPONSE, BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE,
    BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE, BaseCommand.PRODUCER_SUCCESS,
}  # fmt: skip


def check_answer(command: BaseCommand, about: str) -> Any:
    """The message inside an answer; PulsarError when it is a refusal."""
    answer: Any = getattr(command, BY_TYPE[command.type].field)
    kind = command.type
    failed = (
        kind == BaseCommand.ERROR
        or (kind == BaseCommand.LOOKUP_RESPONSE and answer.response == LOOKUP_FAILED)
        or (kind == BaseCommand.PARTITIONED_METADATA_RESPONSE
            and answer.response == PARTITIONS_FAILED)
        or (kind in WITH_ERROR and answer.HasField("error"))
    )  # fmt: skip
    if failed:
        raise error_for_code(answer.error, about, answer.message)
    if kind in WITH_ERROR_CODE and answer.HasField("error_code"):
        raise error_for_code(answer.error_code, about, answer.error_message)
    return answer
