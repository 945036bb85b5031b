"""A TubeMQ client by hand, over a real socket: one request, then its answer."""

from __future__ import annotations

import socket
from itertools import count
from typing import Any

from google.protobuf.message import Message

from trilogue.wire.tubemq.errors import TubeCode
from trilogue.wire.tubemq.frame import BlockFrames, parse_answer, request
from trilogue.wire.tubemq.methods import BY_NAME

TIMEOUT_S = 20


class TubeLine:
    """One connection to a broker's door."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), TIMEOUT_S)
        self._frames = BlockFrames()
        self._serials = count(1)

    def close(self) -> None:
        self._socket.close()

    def ask(self, name: str, **fields: Any) -> Any:
        """Send a request and wait for its answer; OSError when the server is gone."""
        method, serial = BY_NAME[name], next(self._serials)
        body: Message = method.request(**fields)
        self._socket.sendall(
            request(
                serial,
                method.service,
                method.number,
                body.SerializeToString(),
                timeout_ms=TIMEOUT_S * 500,
            )
        )
        while True:
            frame = self._frames.next()
            if frame is not None:
                answer = parse_answer(frame)
                assert (answer.serial, answer.status) == (serial, 0), answer.text
                return method.response.FromString(bytes(answer.body))
            size = self._socket.recv_into(self._frames.get_buffer())
            if not size:
                raise ConnectionResetError("the server closed the connection")
            self._frames.received(size)


class TubeReader:
    """One consumer of one partition of the topic "t"; a line that also writes there."""

    def __init__(self, address: str, client_id: str) -> None:
        self.line = TubeLine(address)
        self._me = {"clientId": client_id, "groupName": "g", "topicName": "t", "partitionId": 0}

    def send(self, data: bytes) -> None:
        said = self.line.ask(
            "sendMessageP2B",
            clientId="p",
            topicName="t",
            partitionId=0,
            data=data,
            flag=0,
            checkSum=-1,
            sentAddr=1,
        )
        assert said.success, said.errMsg

    def register(self) -> int:
        """Where the group is."""
        said = self.line.ask("consumerRegisterC2B", opType=31, readStatus=0, **self._me)
        assert said.success, said.errMsg
        return int(said.currOffset)

    def get(self, *, consumed: bool) -> list[bytes]:
        said = self.line.ask("getMessagesC2B", lastPackConsumed=consumed, **self._me)
        assert said.errCode in {TubeCode.SUCCESS, TubeCode.NOT_FOUND}, said.errMsg
        return [each.payLoadData for each in said.messages]

    def commit(self, *, consumed: bool) -> int:
        """Where the group is, durably."""
        said = self.line.ask("consumerCommitC2B", lastPackConsumed=consumed, **self._me)
        assert said.success, said.errMsg
        return int(said.currOffset)
