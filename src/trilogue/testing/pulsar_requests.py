"""Pulsar commands as faults see them: their topics, and the command that refuses one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trilogue.testing.faults import Request
from trilogue.testing.kafka_requests import split_int32
from trilogue.wire.pulsar.commands import BY_TYPE, COMMANDS, Sender
from trilogue.wire.pulsar.frame import encode_command, parse_command
from trilogue.wire.pulsar.pulsar_pb2 import (
    BaseCommand,
    CommandError,
    CommandSendError,
    ServerError,
)

PROTOCOL = "pulsar"
TEXT = "a fault of the test"


class PulsarRequests:
    """Reads the frames of one connection: a SEND names its producer, the producer its topic."""

    protocol = PROTOCOL
    replies_by_request = False

    def __init__(self) -> None:
        self._topics: dict[tuple[str, int], str] = {}  # (producer or consumer, id) -> topic
        self._client = ""

    def split(self, received: bytearray) -> Iterator[bytes]:
        """Take the complete frames, of either side, away from the front of what was received."""
        return split_int32(received)

    def describe(self, frame: bytes) -> Request | None:
        """Return the request of a frame; None for one that is none, which the broker refuses."""
        command = _parse(frame)
        if command is None:
            return None
        row = BY_TYPE[command.type]
        body: Any = getattr(command, row.field)
        if row.name == "CONNECT":
            self._client = body.client_version
        topic = getattr(body, "topic", "")
        for kind in ("producer", "consumer"):
            number = getattr(body, f"{kind}_id", None)
            if number is None:
                continue
            if topic:
                self._topics[kind, number] = topic
            topic = topic or self._topics.get((kind, number), "")
        return Request(
            PROTOCOL,
            row.name,
            topics=spellings(topic) if topic else (),
            client_id=self._client,
            correlation_id=getattr(body, "request_id", getattr(body, "sequence_id", 0)),
        )

    def has_reply(self, _frame: bytes, /) -> bool:
        """Return True: clients find the request of a reply by its number."""
        return True

    def encode_error(self, frame: bytes, error: str) -> bytes:
        """Return the command that refuses one; ValueError for the name of the error."""
        ServerError.Value(error)
        command = _parse(frame)
        assert command is not None
        body: Any = getattr(command, BY_TYPE[command.type].field)
        if command.type == BaseCommand.SEND:
            refusal = BaseCommand(
                type=BaseCommand.SEND_ERROR,
                send_error=CommandSendError(
                    producer_id=body.producer_id,
                    sequence_id=body.sequence_id,
                    error=error,
                    message=TEXT,
                ),
            )
        else:
            error_body = CommandError(
                request_id=getattr(body, "request_id", 0), error=error, message=TEXT
            )
            refusal = BaseCommand(type=BaseCommand.ERROR, error=error_body)
        return encode_command(refusal)


def list_requests() -> list[str]:
    """Return the names of the commands of clients."""
    return [each.name for each in COMMANDS if each.sender is not Sender.BROKER]


def list_errors() -> list[str]:
    """Return the names of all errors."""
    return list(ServerError.keys())


def spellings(topic: str) -> tuple[str, ...]:
    """Return the names by which a rule may name a topic: whole, and the last part alone."""
    short = topic.rpartition("/")[2]
    whole = short.rpartition("-partition-")
    base = whole[0] if whole[2].isdigit() else short
    return tuple(dict.fromkeys((topic, short, base)))


def _parse(frame: bytes) -> BaseCommand | None:
    try:
        return parse_command(memoryview(frame)[4:])
    except Exception:  # noqa: BLE001 - whatever it is, the broker answers it
        return None
