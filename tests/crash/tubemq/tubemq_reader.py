"""A TubeMQ client by hand, over a real socket: one request, then its answer, or many at once."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, Self

from google.protobuf.message import Message

from tests.gateway.tubemq.rig import send_fields
from trilogue.wire.tubemq.errors import TubeCode
from trilogue.wire.tubemq.frame import BlockFrames, encode_request, parse_response
from trilogue.wire.tubemq.methods import BY_NAME, find_method

TIMEOUT_S = 20


class TubeLine:
    """One connection to a listener."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), TIMEOUT_S)
        self._frames = BlockFrames()
        self._serials = count(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def send(self, name: str, **fields: Any) -> int:
        """Send a request and do not wait; its serial number. OSError when the server is gone."""
        method, serial = BY_NAME[name], next(self._serials)
        body: Message = method.request(**fields)
        self._socket.sendall(
            encode_request(
                serial,
                method.service,
                method.number,
                body.SerializeToString(),
                timeout_ms=TIMEOUT_S * 500,
            )
        )
        return serial

    def receive(self, wait_s: float = TIMEOUT_S) -> Iterator[tuple[int, Any]]:
        """Answers with their serial numbers: what is there, and what one read brings."""
        yield from self._whole()
        self._socket.settimeout(max(wait_s, 0.001))
        try:
            size = self._socket.recv_into(self._frames.get_buffer())
        except TimeoutError:
            return
        finally:
            self._socket.settimeout(TIMEOUT_S)
        if not size:
            raise ConnectionResetError("the server closed the connection")
        self._frames.received(size)
        yield from self._whole()

    def _whole(self) -> Iterator[tuple[int, Any]]:
        while (frame := self._frames.next()) is not None:
            answer = parse_response(frame)
            assert answer.status == 0, answer.text
            method = find_method(answer.method)
            assert method is not None
            yield answer.serial, method.response.FromString(bytes(answer.body))

    def request(self, name: str, **fields: Any) -> Any:
        """Send a request and wait for its answer; OSError when the server is gone."""
        serial = self.send(name, **fields)
        while True:
            for answered, message in self.receive():
                assert answered == serial
                return message

    def send_message(self, topic: str, partition: int, data: bytes) -> int:
        """Send a message and do not wait."""
        return self.send("sendMessageP2B", **send_fields(topic, partition, data))


class TubeReader:
    """One consumer of one partition (of the topic "t"); a line that also writes there."""

    def __init__(
        self,
        address: str,
        client_id: str,
        *,
        group: str = "g",
        topic: str = "t",
        partition: int = 0,
    ) -> None:
        self.line = TubeLine(address)
        self._where = {"topicName": topic, "partitionId": partition}
        self._me = {"clientId": client_id, "groupName": group, **self._where}

    def send(self, data: bytes) -> None:
        response = self.line.request(
            "sendMessageP2B",
            clientId="p",
            data=data,
            flag=0,
            checkSum=-1,
            sentAddr=1,
            **self._where,
        )
        assert response.success, response.errMsg

    def register(self) -> int:
        """Where the group is."""
        response = self.line.request("consumerRegisterC2B", opType=31, readStatus=0, **self._me)
        assert response.success, response.errMsg
        return int(response.currOffset)

    def unregister(self, *, consumed: bool) -> None:
        """Read no more; what was handed out last is confirmed with it, or comes again."""
        response = self.line.request(
            "consumerRegisterC2B", opType=32, readStatus=int(not consumed), **self._me
        )
        assert response.success, response.errMsg

    def get(self, *, consumed: bool) -> list[bytes]:
        return [data for _, data in self.pack(consumed=consumed)]

    def pack(self, *, consumed: bool) -> list[tuple[int, bytes]]:
        """Messages with their offsets."""
        response = self.line.request("getMessagesC2B", lastPackConsumed=consumed, **self._me)
        assert response.errCode in {TubeCode.SUCCESS, TubeCode.NOT_FOUND}, response.errMsg
        return [
            (response.currOffset + at, each.payLoadData)
            for at, each in enumerate(response.messages)
        ]

    def commit(self, *, consumed: bool) -> int:
        """Where the group is, durably."""
        response = self.line.request("consumerCommitC2B", lastPackConsumed=consumed, **self._me)
        assert response.success, response.errMsg
        return int(response.currOffset)


@contextmanager
def reading(address: str, client_id: str, **where: Any) -> Iterator[TubeReader]:
    """A reader that is gone afterwards."""
    reader = TubeReader(address, client_id, **where)
    try:
        yield reader
    finally:
        reader.line.close()
