"""Finding the broker of a topic: redirects, proxies, HTTP; again whenever something was created."""

from __future__ import annotations

import asyncio
import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.client.harness import run_on_idle_clock
from tests.client.pulsar.scripted import (
    HANG_UP,
    LOOKUP,
    SILENCE,
    TOPIC,
    Peer,
    ScriptedPulsar,
    lookup_answer,
    on_broker,
)
from trilogue.client.errors import ClientError, ConnectionLost
from trilogue.client.pulsar import PulsarClient, PulsarError, TimedOut
from trilogue.client.pulsar.lookup import MAX_PARTITIONS
from trilogue.wire.pulsar import pulsar_pb2 as pb
from trilogue.wire.pulsar.errors import ServerError


@on_broker
async def test_a_redirect_is_followed_and_its_authoritative_passed_on(
    broker: ScriptedPulsar, client: PulsarClient
):
    """Pulsar protocol, topic lookup: "Initial lookup request should use false. When following a
    redirect
    response, client should pass the same value contained in the response"."""
    async with ScriptedPulsar() as second:
        redirect = lookup_answer(second.url, response=LOOKUP.Redirect, authoritative=True)
        broker.next_up["LOOKUP"].append(redirect)

        producer = await client.producer("t")
        await producer.send(b"x")
        await client.close()

    assert [one.authoritative for one in broker.all("LOOKUP")] == [False]
    assert [one.authoritative for one in second.all("LOOKUP")] == [True]
    assert (len(broker.sections), len(second.sections)) == (0, 1)


@on_broker
async def test_redirects_without_end_are_an_error(broker: ScriptedPulsar, client: PulsarClient):
    around = lookup_answer(broker.url, response=LOOKUP.Redirect)
    broker.next_up["LOOKUP"].extend([around] * 21)

    with pytest.raises(ClientError, match="more than 20 redirects"):
        await client.producer("t")


@on_broker
async def test_partitions_are_requested_once_and_the_broker_at_every_reconnection(
    broker: ScriptedPulsar, client: PulsarClient
):
    """Pulsar protocol, partitioned topics: "This information only needs to be retrieved the first
    time ... There is no need to do this after reconnections"; topic lookup: "needs to be performed
    each
    time a client needs to create or reconnect a producer or a consumer"."""
    producer = await client.producer("t")
    consumer = await client.subscribe("t", "s")
    broker.peers[0].hang_up()
    await broker.saw("PRODUCER", 2)
    await broker.saw("SUBSCRIBE", 2)
    await producer.send(b"x")
    await consumer.close()

    assert len(broker.all("PARTITIONED_METADATA")) == 2  # of the producer and of the consumer
    assert len(broker.all("LOOKUP")) == 4
    assert len(broker.peers) == 2


@on_broker
async def test_a_close_from_the_broker_means_a_new_lookup_on_the_same_connection(
    broker: ScriptedPulsar, client: PulsarClient
):
    """Pulsar protocol, CloseProducer: "the client is expected to go through the service discovery
    lookup again and recreate the producer again. The TCP connection is not affected."
    CloseConsumer: "behaves the same"."""
    producer = await client.producer("t")
    await client.subscribe("t", "s")
    close = pb.CommandCloseProducer(producer_id=0, request_id=2**64 - 1)
    broker.peers[0].send(close_producer=close)
    gone = pb.CommandCloseConsumer(consumer_id=1, request_id=2**64 - 1)
    broker.peers[0].send(close_consumer=gone)
    await broker.saw("PRODUCER", 2)
    await broker.saw("SUBSCRIBE", 2)
    await producer.send(b"x")

    assert len(broker.all("LOOKUP")) == 4
    assert len(broker.peers) == 1
    assert broker.names("CLOSE_PRODUCER", "CLOSE_CONSUMER") == []


@on_broker
async def test_a_close_right_behind_the_answer_is_not_missed(
    broker: ScriptedPulsar, client: PulsarClient
):
    def answered_and_closed(peer: Peer, producer: Any) -> None:
        broker.on_producer(peer, producer)
        close = pb.CommandCloseProducer(producer_id=producer.producer_id, request_id=2**64 - 1)
        peer.send(close_producer=close)

    broker.next_up["PRODUCER"].append(answered_and_closed)
    producer = await client.producer("t")
    await producer.send(b"x")

    assert len(broker.all("PRODUCER")) == len(broker.all("LOOKUP")) == 2


@on_broker
async def test_a_topic_that_moved_is_found_where_it_went(
    broker: ScriptedPulsar, client: PulsarClient
):
    async with ScriptedPulsar() as second:
        producer = await client.producer("t")
        broker.next_up["LOOKUP"].append(lookup_answer(second.url))
        close = pb.CommandCloseProducer(producer_id=0, request_id=2**64 - 1)
        broker.peers[0].send(close_producer=close)
        await second.saw("PRODUCER")
        await producer.send(b"x")
        await client.close()

    assert (len(broker.sections), len(second.sections)) == (0, 1)


@on_broker
async def test_a_topic_migrated_is_looked_up_again(broker: ScriptedPulsar, client: PulsarClient):
    producer = await client.producer("t")
    moved = pb.CommandTopicMigrated(resource_id=0, resource_type=pb.CommandTopicMigrated.Producer)
    broker.peers[0].send(topicMigrated=moved)
    await broker.saw("PRODUCER", 2)
    await producer.send(b"x")

    assert len(broker.all("LOOKUP")) == 2


@on_broker
async def test_through_a_proxy_the_broker_is_named_in_connect(
    broker: ScriptedPulsar, client: PulsarClient
):
    inside = "pulsar://10.0.0.7:6650"
    broker.next_up["LOOKUP"].append(lookup_answer(inside, proxy_through_service_url=True))

    await client.producer("t")

    assert [one.proxy_to_broker_url for one in broker.all("CONNECT")] == ["", "10.0.0.7:6650"]


@on_broker
async def test_retriable_errors_are_retried(broker: ScriptedPulsar, client: PulsarClient):
    failed = lookup_answer(
        "", response=LOOKUP.Failed, error=int(ServerError.ServiceNotReady), message="not yet"
    )
    broker.next_up["LOOKUP"].append(failed)
    broker.next_up["PRODUCER"].append(ServerError.TooManyRequests)

    producer = await client.producer("t")

    assert producer.name == "made-up"
    assert len(broker.all("LOOKUP")) == 3


@on_broker
async def test_permanent_error_is_raised_with_its_name(
    broker: ScriptedPulsar, client: PulsarClient
):
    failed = lookup_answer(
        "", response=LOOKUP.Failed, error=int(ServerError.AuthorizationError), message="no"
    )
    broker.next_up["LOOKUP"].append(failed)

    with pytest.raises(PulsarError, match=r"AuthorizationError \(4\)") as caught:
        await client.producer("t")

    assert caught.value.error is ServerError.AuthorizationError


@on_broker
async def test_answers_that_lead_nowhere_are_not_believed(
    broker: ScriptedPulsar, client: PulsarClient
):
    broker.next_up["LOOKUP"].append(lookup_answer(""))
    with pytest.raises(ClientError, match="without an address"):
        await client.producer("t")

    broker.next_up["LOOKUP"].append(lookup_answer("pulsar+ssl://h:1"))
    with pytest.raises(ClientError, match=r"leads to 'pulsar\+ssl"):
        await client.producer("t")

    broker.partitions[TOPIC] = MAX_PARTITIONS + 1
    with pytest.raises(ClientError, match="100001 partitions"):
        await client.producer("t")


@on_broker(request_timeout_s=0.2)
async def test_silence_is_a_time_out(broker: ScriptedPulsar, client: PulsarClient):
    broker.next_up["LOOKUP"].extend([SILENCE] * 9)

    with pytest.raises(TimedOut, match="no answer"):
        await client.producer("t")


@on_broker
async def test_a_connection_that_is_lost_meanwhile_is_opened_again(
    broker: ScriptedPulsar, client: PulsarClient
):
    """A broker that was started again, or that closed an idle connection: not yet noticed here."""
    await client.partitions("t")
    broker.next_up["PARTITIONED_METADATA"].append(HANG_UP)
    broker.next_up["GET_TOPICS_OF_NAMESPACE"].append(HANG_UP)

    assert await client.partitions("t") == 0
    assert await client.topics() == []
    assert len(broker.all("CONNECT")) == 3


def test_the_next_address_is_tried_when_one_does_not_answer():
    async def work() -> str:
        async with ScriptedPulsar() as broker:
            url = f"pulsar://127.0.0.1:1,127.0.0.1:{broker.port}"
            async with PulsarClient(url) as client:
                return (await client.producer("t")).name

    assert run_on_idle_clock(work()) == "made-up"


def test_refused_connection_raises_connection_lost():
    async def work() -> None:
        async with PulsarClient("pulsar://127.0.0.1:1", request_timeout_s=0.2) as client:
            await client.partitions("t")

    with pytest.raises(ConnectionLost):
        run_on_idle_clock(work())


@pytest.mark.parametrize("url", ["kafka://h:1", "pulsar://h:0", "pulsar://", "https://"])
def test_addresses_that_are_none_are_refused(url: str):
    with pytest.raises(ClientError):
        PulsarClient(url)


class Admin(http.server.BaseHTTPRequestHandler):
    """The HTTP side of a service: the first address only redirects."""

    answers: dict[str, Any]
    requests: list[tuple[str, str | None]]

    def do_GET(self) -> None:
        self.requests.append((self.path, self.headers.get("Authorization")))
        answer = self.answers.get(self.path.partition("?")[0], 404)
        if isinstance(answer, str):
            self.send_response(307)
            here = f"http://127.0.0.1:{self.server.server_port}"
            self.send_header("Location", here + answer if answer.startswith("/") else answer)
            self.end_headers()
            return
        self.send_response(answer if isinstance(answer, int) else 200)
        self.end_headers()
        self.wfile.write(b"?" if isinstance(answer, int) else json.dumps(answer).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def admin() -> Iterator[type[Admin]]:
    handler = type("Handler", (Admin,), {"answers": {}, "requests": []})
    server = http.server.HTTPServer(("127.0.0.1", 0), handler)
    handler.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield handler
    server.shutdown()
    thread.join()
    server.server_close()


LOOKED_UP = "/lookup/v2/topic/persistent/public/default/a%20b"
PARTITIONS = "/admin/v2/persistent/public/default/a%20b/partitions"


@on_broker
async def test_a_topic_is_looked_up_over_http_with_redirects(
    broker: ScriptedPulsar, elsewhere: PulsarClient, admin: type[Admin]
):
    """Pulsar protocol, topic lookup: "Lookup can be done with a REST call"."""
    admin.answers[PARTITIONS] = {"partitions": 0}
    admin.answers[LOOKED_UP] = "/moved"
    admin.answers["/moved"] = {"brokerUrl": broker.url}

    await elsewhere.close()
    async with PulsarClient(admin.url, token="secret") as client:
        producer = await client.producer("a b")
        await producer.send(b"x")

    assert [path.partition("?")[0] for path, _ in admin.requests] == [
        PARTITIONS,
        LOOKED_UP,
        "/moved",
    ]
    assert {token for _, token in admin.requests} == {"Bearer secret"}
    assert broker.names("LOOKUP", "SEND") == ["SEND"]


@pytest.mark.parametrize("login", [{"token": "t"}, {"username": "u", "password": "p"}, {}])
def test_a_login_is_not_sent_to_another_server(admin: type[Admin], login: dict[str, str]):
    """A redirect to another port is one to another server; without a login it is followed."""
    other = type("Other", (Admin,), {"answers": {}, "requests": []})
    with http.server.HTTPServer(("127.0.0.1", 0), other) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        admin.answers[PARTITIONS] = f"http://127.0.0.1:{server.server_port}/stolen"

        async def work() -> None:
            async with PulsarClient(admin.url, **login) as client:
                await client.partitions("a b")

        problem = "not sent to another server" if login else "TopicNotFound"
        with pytest.raises(ClientError, match=problem):
            asyncio.run(work())
        server.shutdown()
        thread.join()
    assert other.requests == ([] if login else [("/stolen", None)])


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (LOOKED_UP, "more than 20 redirects"),
        (403, "AuthorizationError"),
        (404, "TopicNotFound"),
        ({}, "without brokerUrl"),
        ([], "without brokerUrl"),
    ],
)
def test_http_answers_that_lead_nowhere_are_not_believed(
    admin: type[Admin], answer: object, problem: str
):
    async def work() -> None:
        async with PulsarClient(admin.url, request_timeout_s=2) as client:
            await client.producer("a b")

    admin.answers[PARTITIONS] = {"partitions": 0}
    admin.answers[LOOKED_UP] = answer

    with pytest.raises(ClientError, match=problem):
        asyncio.run(work())


@on_broker
async def test_producers_and_consumers_share_a_connection(
    broker: ScriptedPulsar, client: PulsarClient
):
    """Commands of different producers and consumers may be interleaved over one connection."""
    await asyncio.gather(*(client.producer(f"t{one}") for one in range(3)))
    await client.subscribe(["t1", "t2"], "s")

    assert len(broker.peers) == 1
    ids = [one.producer_id for one in broker.all("PRODUCER")]
    ids += [one.consumer_id for one in broker.all("SUBSCRIBE")]
    assert sorted(ids) == [0, 1, 2, 3, 4]


def hang_up(peer: Peer, _message: Any) -> None:
    peer.hang_up()


@on_broker
async def test_a_connection_lost_in_a_request_is_made_again(
    broker: ScriptedPulsar, client: PulsarClient
):
    for command in ("LOOKUP", "PRODUCER"):
        broker.next_up[command].append(hang_up)

    producer = await client.producer("t")

    assert producer.name == "made-up"
    assert len(broker.peers) == 3
