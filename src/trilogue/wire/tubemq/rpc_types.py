"""The values that rpc_codec.py parses and encodes: plain tuples, one per request or message."""

from __future__ import annotations

from typing import NamedTuple


class RpcRequest(NamedTuple):
    """A request without its envelope; `body` is the message of the method, a view of the frame.

    `version` and `service` are 0, and `timeout_ms` is -1, where the client sends none.
    """

    serial: int
    service: int
    version: int
    method: int
    timeout_ms: int
    body: memoryview


class RpcResponse(NamedTuple):
    """A response without its envelope, as a client reads it.

    Where `status` is not 0 (SUCCESS) there is no method and no body, but `exception`, the name of
    a Java class, and `text`.
    """

    serial: int
    status: int
    method: int
    body: memoryview
    exception: str = ""
    text: str = ""


class SendRequest(NamedTuple):
    """A sendMessageP2B. `data` is a view of the frame; tokens are None where none is sent."""

    client_id: str
    topic: str
    partition_id: int
    data: memoryview
    flag: int
    checksum: int
    sent_addr: int
    message_type: str | None
    message_time: str | None
    visit_token: int | None
    auth_token: str | None


class MessageTransfer(NamedTuple):
    """One message of a getMessagesC2B response; `data` is not copied."""

    message_id: int
    checksum: int
    data: memoryview | bytes
    flag: int
