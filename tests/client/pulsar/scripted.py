"""A Pulsar broker in the test's own loop that does what a test wants it to do: for what no real one
does on demand (redirects, closes, silence, broken frames, receipts that skip).

Served as a plain broker would unless `next_up` holds something for the next commands of a type: an
error code, SILENCE, HANG_UP, or a function that gets the peer and the message and answers itself.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any

from tests.client.harness import ScriptedServer, in_one_loop, on_its_own_loop
from trilogue.client.pulsar import PulsarClient
from trilogue.entry.pulsar.pulsar_batch import build_batch, build_section, build_single
from trilogue.wire.pulsar import pulsar_pb2 as pb
from trilogue.wire.pulsar.commands import BY_TYPE
from trilogue.wire.pulsar.errors import ServerError
from trilogue.wire.pulsar.frame import encode_command, find_section, parse_command
from trilogue.wire.pulsar.message_types import SingleMessage

SILENCE, HANG_UP = "silence", "hang up"
TOPIC = "persistent://public/default/t"
LOOKUP = pb.CommandLookupTopicResponse


class Peer:
    """One connection, seen from the broker."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer

    def send(self, **field: Any) -> None:
        """Send a command, named by its field."""
        ((name, message),) = field.items()
        number = pb.BaseCommand.DESCRIPTOR.fields_by_name[name].number
        self.raw(encode_command(pb.BaseCommand(type=number, **{name: message})))

    def raw(self, octets: bytes) -> None:
        self.writer.write(octets)

    def message(self, section: bytes, entry: int = 0, consumer: int = 0, **more: Any) -> None:
        place = pb.MessageIdData(ledgerId=1, entryId=entry)
        message = pb.CommandMessage(consumer_id=consumer, message_id=place, **more)
        body = pb.BaseCommand(type=pb.BaseCommand.MESSAGE, message=message).SerializeToString()
        size = len(body).to_bytes(4, "big")
        self.raw((4 + len(body) + len(section)).to_bytes(4, "big") + size + body + section)

    def hang_up(self) -> None:
        self.writer.close()


class ScriptedPulsar(ScriptedServer[Peer]):
    """A broker; what was sent to it is in `sections`."""

    def __init__(self) -> None:
        super().__init__()
        self.sections: list[bytes] = []
        self.partitions: dict[str, int] = {}
        self.topics: list[str] = []
        self.version = 21
        self.max_message_size = 5 << 20
        self.last_sequence_id = -1
        self.last_message_id = pb.MessageIdData(ledgerId=2**64 - 1, entryId=2**64 - 1)
        self._entries = 0
        self._transactions = -1

    @property
    def url(self) -> str:
        return f"pulsar://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(writer)
        self.peers.append(peer)
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = memoryview(await reader.readexactly(size))
                if self.take(peer, frame) is HANG_UP:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.note("GONE", peer)
            writer.close()

    def take(self, peer: Peer, frame: memoryview) -> str | None:
        command = parse_command(frame)
        row = BY_TYPE[command.type]
        message = getattr(command, row.field)
        if row.name == "SEND":
            self.sections.append(bytes(find_section(frame)))
        self.note(row.name, message)
        upset = self.upset(row.name)
        if isinstance(upset, int):
            error = pb.CommandError(
                request_id=message.request_id, error=int(upset), message="scripted"
            )
            peer.send(error=error)
        elif callable(upset):
            upset(peer, message)
        elif upset is None:
            answer = getattr(self, f"on_{row.name.lower()}", None)
            if answer is not None:
                answer(peer, message)
        return upset if upset is HANG_UP else None

    def names(self, *wanted: str) -> list[str]:
        return [name for name, _ in self.seen if name in wanted]

    # What a plain broker answers.

    def on_connect(self, peer: Peer, _connect: Any) -> None:
        connected = pb.CommandConnected(
            server_version="scripted",
            protocol_version=self.version,
            max_message_size=self.max_message_size,
        )
        peer.send(connected=connected)

    def on_partitioned_metadata(self, peer: Peer, query: Any) -> None:
        answer = pb.CommandPartitionedTopicMetadataResponse(
            partitions=self.partitions.get(query.topic, 0),
            request_id=query.request_id,
            response=pb.CommandPartitionedTopicMetadataResponse.Success,
        )
        peer.send(partitionMetadataResponse=answer)

    def on_lookup(self, peer: Peer, query: Any) -> None:
        lookup_answer(self.url)(peer, query)

    def on_producer(self, peer: Peer, producer: Any) -> None:
        answer = pb.CommandProducerSuccess(
            request_id=producer.request_id,
            producer_name=producer.producer_name or "made-up",
            last_sequence_id=self.last_sequence_id,
            schema_version=b"",
        )
        peer.send(producer_success=answer)

    def on_send(self, peer: Peer, send: Any) -> None:
        receipt(peer, send, self._entries)
        self._entries += 1

    def _success(self, peer: Peer, query: Any) -> None:
        peer.send(success=pb.CommandSuccess(request_id=query.request_id))

    on_subscribe = on_close_producer = on_close_consumer = on_unsubscribe = on_seek = _success

    def on_get_last_message_id(self, peer: Peer, query: Any) -> None:
        answer = pb.CommandGetLastMessageIdResponse(
            last_message_id=self.last_message_id, request_id=query.request_id
        )
        peer.send(getLastMessageIdResponse=answer)

    def on_get_topics_of_namespace(self, peer: Peer, query: Any) -> None:
        answer = pb.CommandGetTopicsOfNamespaceResponse(
            request_id=query.request_id, topics=self.topics
        )
        peer.send(getTopicsOfNamespaceResponse=answer)

    def on_tc_client_connect_request(self, peer: Peer, query: Any) -> None:
        answer = pb.CommandTcClientConnectResponse(request_id=query.request_id)
        peer.send(tcClientConnectResponse=answer)

    def on_new_txn(self, peer: Peer, query: Any) -> None:
        self._transactions += 1
        answer = pb.CommandNewTxnResponse(
            request_id=query.request_id,
            txnid_most_bits=query.tc_id,
            txnid_least_bits=self._transactions,
        )
        peer.send(newTxnResponse=answer)

    def on_add_partition_to_txn(self, peer: Peer, query: Any) -> None:
        answer = pb.CommandAddPartitionToTxnResponse(request_id=query.request_id)
        peer.send(addPartitionToTxnResponse=answer)

    def on_add_subscription_to_txn(self, peer: Peer, query: Any) -> None:
        answer = pb.CommandAddSubscriptionToTxnResponse(request_id=query.request_id)
        peer.send(addSubscriptionToTxnResponse=answer)

    def on_end_txn(self, peer: Peer, query: Any) -> None:
        peer.send(endTxnResponse=pb.CommandEndTxnResponse(request_id=query.request_id))

    def on_ping(self, peer: Peer, _ping: Any) -> None:
        peer.send(pong=pb.CommandPong())

    def on_ack(self, peer: Peer, ack: Any) -> None:
        if ack.HasField("request_id"):
            answer = pb.CommandAckResponse(consumer_id=ack.consumer_id, request_id=ack.request_id)
            peer.send(ackResponse=answer)


def lookup_answer(url: str, **more: Any) -> Callable[[Peer, Any], None]:
    """An answer to LOOKUP; `response=LOOKUP.Redirect` and so on."""

    def answer(peer: Peer, query: Any) -> None:
        found = {"response": LOOKUP.Connect, "authoritative": True, **more}
        response = LOOKUP(request_id=query.request_id, brokerServiceUrl=url, **found)
        peer.send(lookupTopicResponse=response)

    return answer


def receipt(peer: Peer, send: Any, entry: int, sequence_id: int | None = None) -> None:
    answer = pb.CommandSendReceipt(
        producer_id=send.producer_id,
        sequence_id=send.sequence_id if sequence_id is None else sequence_id,
        message_id=pb.MessageIdData(ledgerId=1, entryId=entry),
        highest_sequence_id=send.highest_sequence_id,
    )
    peer.send(send_receipt=answer)


def send_error(code: ServerError) -> Callable[[Peer, Any], None]:
    def answer(peer: Peer, send: Any) -> None:
        error = pb.CommandSendError(
            producer_id=send.producer_id,
            sequence_id=send.sequence_id,
            error=int(code),
            message="scripted",
        )
        peer.send(send_error=error)

    return answer


def text(value: bytes | None, key: str | None = None) -> SingleMessage:
    return SingleMessage(-1, value, key, False, False, None, 0, -1, ())


def metadata(**more: Any) -> pb.MessageMetadata:
    return pb.MessageMetadata(**{"producer_name": "p", "sequence_id": 0, "publish_time": 1} | more)


def single(value: bytes, **more: Any) -> bytes:
    """The section of one message."""
    return build_single(text(value), metadata(**more))


def batch(*values: bytes | None, codec: int = 0) -> bytes:
    """The section of a batch; None is a message that was compacted out."""
    messages = [None if value is None else text(value) for value in values]
    return build_batch(messages, metadata(), codec=codec)


def on_broker(
    test: Callable[[ScriptedPulsar, PulsarClient], Awaitable[None]] | None = None, **options: Any
) -> Any:
    """Run a test with a broker and a client of it, both in one loop."""
    if test is None:
        return functools.partial(on_broker, **options)

    async def work(**arguments: Any) -> None:
        quick = {"request_timeout_s": 5.0} | options
        async with ScriptedPulsar() as broker, PulsarClient(broker.url, **quick) as client:
            async with asyncio.timeout(120):
                await test(broker, client, **arguments)

    return in_one_loop(test, work)


def in_thread() -> AbstractContextManager[ScriptedPulsar]:
    """A broker on a loop of its own, so that a client that blocks can be tested."""
    return on_its_own_loop(ScriptedPulsar())


def chunk(number: int, count: int, payload: bytes, total: int, uuid: str = "u") -> bytes:
    return build_section(
        metadata(uuid=uuid, chunk_id=number, num_chunks_from_msg=count, total_chunk_msg_size=total),
        payload,
    )
