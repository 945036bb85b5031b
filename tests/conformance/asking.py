"""A Kafka client that sends exactly the requests of a test and returns the decoded responses.

For rules that no client library can be made to show, in any version of a request. It uses our own
codec, which tests/wire/kafka compares with Kafka's definitions; `raw.py` does not use it.
"""

from __future__ import annotations

import itertools
import socket
import ssl
import struct
from types import TracebackType
from typing import Any, Self

from tools.servers.probe import receive

from trilogue.wire.kafka.api import MESSAGES
from trilogue.wire.kafka.codec.compile import decoder, encoder
from trilogue.wire.kafka.codec.header import (
    RequestHeader,
    decode_response_header,
    encode_request_header,
)
from trilogue.wire.kafka.codec.schema import table
from trilogue.wire.kafka.groups.classic import FindCoordinatorRequest


class Asker:
    """One connection: requests out, answers in their order."""

    def __init__(
        self, address: str, *, timeout: float = 20.0, tls: ssl.SSLContext | None = None
    ) -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname=host)
        self._requests: list[tuple[int, int, int]] = []  # key, version, correlation id
        self._numbers = itertools.count(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def send(self, request: object, version: int) -> None:
        key = table(type(request)).key
        correlation_id = next(self._numbers)
        body = bytearray()
        encode_request_header(body, RequestHeader(key, version, correlation_id, "asker"))
        encoder(type(request), version)(request, body)
        self._socket.sendall(struct.pack(">i", len(body)) + body)
        self._requests.append((key, version, correlation_id))

    def answer(self) -> Any:
        """The next answer, decoded to its last byte."""
        key, version, correlation_id = self._requests.pop(0)
        (size,) = struct.unpack(">i", receive(self._socket, 4))
        frame = receive(self._socket, size)
        found, position = decode_response_header(memoryview(frame), key, version)
        assert found == correlation_id, "answers are out of order"
        response, position = decoder(MESSAGES[key][1], version)(memoryview(frame), position)
        assert position == size, "bytes after the response"
        return response

    def unanswered(self) -> None:
        """Pass over the next one, which has no answer (acks 0)."""
        self._requests.pop(0)

    def request(self, request: object, version: int) -> Any:
        self.send(request, version)
        return self.answer()


def coordinator_of(address: str, group: str) -> str:
    """The address of the node that coordinates a group."""
    with Asker(address) as asker:
        answer = asker.request(FindCoordinatorRequest(coordinator_keys=[group]), 4)
    (found,) = answer.coordinators
    assert not found.error_code, found
    return f"{found.host}:{found.port}"
