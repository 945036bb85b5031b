"""What the hot path reads of TubeMQ's frames: plain tuples, since each stands for one message."""

from __future__ import annotations

from typing import NamedTuple


class Request(NamedTuple):
    """A request without its envelope; `body` is the inner message, a view of the frame.

    `version` and `service` are 0 where the client says none, `timeout_ms` is then -1.
    """

    serial: int
    service: int
    version: int
    method: int
    timeout_ms: int
    body: memoryview


class Answer(NamedTuple):
    """An answer without its envelope, as a client reads it.

    Where `status` is not 0 there is no method and no body, but `exception`, the name of a Java
    class, and `text`.
    """

    serial: int
    status: int
    method: int
    body: memoryview
    exception: str = ""
    text: str = ""


class Send(NamedTuple):
    """A sendMessageP2B. `data` is a view of the frame; tokens are None where none is shown."""

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


class Transfer(NamedTuple):
    """One message of a getMessagesC2B answer; `data` is what the consumer gets, uncopied."""

    message_id: int
    checksum: int
    data: memoryview | bytes
    flag: int
