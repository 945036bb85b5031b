"""Messages over WebSockets: produced, consumed, acknowledged, returned, read."""

from __future__ import annotations

import base64
import itertools
import subprocess

import httpx
import pytest
import websocket

from tests.gateway.http.websocket.sockets import Socket, encode, refusal
from tests.server import start_server
from tests.tools import require_program
from trilogue.client.pulsar.sync import PulsarClient

NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with start_server(tmp_path_factory.mktemp("node") / "data") as made:
        yield made


@pytest.fixture
def sockets(server):
    """Return what opens WebSockets by their paths."""
    opened = []

    def open_socket(path: str) -> Socket:
        opened.append(Socket(server.doors["http"], path))
        return opened[-1]

    yield open_socket
    for each in opened:
        each.close()


@pytest.fixture
def topic():
    return f"persistent/public/default/socket-{next(NUMBERS)}"


def test_a_message_has_what_its_producer_gave_it(sockets, topic):
    consumer = sockets(f"consumer/{topic}/s")
    producer = sockets(f"producer/{topic}")

    receipt = producer.produce(
        b"one", context="c-1", key="k", properties={"a": "b"}, eventTime="2026-01-02T03:04:05.678Z"
    )

    assert (receipt["result"], receipt["context"]) == ("ok", "c-1")
    message = consumer.receive()
    assert base64.b64decode(message.pop("payload")) == b"one"
    assert message.pop("publishTime").endswith("Z")
    assert message == {
        "messageId": receipt["messageId"],
        "properties": {"a": "b"},
        "key": "k",
        "eventTime": "2026-01-02T03:04:05.678Z",
        "redeliveryCount": 0,
    }


def test_clients_of_the_binary_protocol_share_its_topics(server, sockets, topic):
    producer = sockets(f"producer/{topic}?batchingEnabled=true&compressionType=LZ4")
    name = topic.replace("/", "://", 1)
    with PulsarClient(server.pulsar) as client:
        other = client.subscribe(name, "binary")
        producer.produce(b"from a socket")
        assert other.receive(timeout_s=20).value == b"from a socket"
        consumer = sockets(f"consumer/{topic}/s")
        client.producer(name).send(b"to a socket")
        assert consumer.take() == b"to a socket"


def test_binary_messages_are_passed_over(server, sockets, topic):
    """A real Pulsar does the same."""
    consumer = sockets(f"consumer/{topic}/s")
    producer = sockets(f"producer/{topic}")
    for each in (producer, consumer):
        each.made.send_binary(b"binary")

    assert producer.produce(b"one")["result"] == "ok"
    assert consumer.take() == b"one"
    assert "Traceback" not in server.output


def test_an_acknowledged_message_does_not_come_again(sockets, topic):
    consumer = sockets(f"consumer/{topic}/s")
    producer = sockets(f"producer/{topic}")
    for each in (b"one", b"two", b"three"):
        producer.produce(each)
    assert consumer.take() == b"one"
    consumer.send(type="isEndOfTopic")  # answered after the acknowledgement was passed on
    while "endOfTopic" not in consumer.receive():
        pass
    consumer.close()

    again = sockets(f"consumer/{topic}/s")
    assert [again.take(), again.take()] == [b"two", b"three"]


def test_the_queue_bounds_what_is_not_acknowledged(sockets, topic):
    consumer = sockets(f"consumer/{topic}/s?receiverQueueSize=2")
    producer = sockets(f"producer/{topic}")
    for number in range(5):
        producer.produce(b"%d" % number)
    first, _ = consumer.receive(), consumer.receive()
    consumer.send(type="isEndOfTopic")

    assert consumer.receive() == {"endOfTopic": False}, "no third message"
    consumer.send(messageId=first["messageId"])
    assert base64.b64decode(consumer.receive()["payload"]) == b"2"


def test_a_returned_message_comes_again_with_its_count(sockets, topic):
    path = f"consumer/{topic}/s?subscriptionType=Shared&negativeAckRedeliveryDelay=100"
    consumer = sockets(path)
    sockets(f"producer/{topic}").produce(b"one")
    message = consumer.receive()
    consumer.send(type="negativeAcknowledge", messageId=message["messageId"])

    again = consumer.receive()
    assert again["messageId"] == message["messageId"]
    assert again["redeliveryCount"] == message["redeliveryCount"] + 1


def test_a_message_without_an_answer_comes_again_after_the_time_out(sockets, topic):
    consumer = sockets(f"consumer/{topic}/s?subscriptionType=Shared&ackTimeoutMillis=1000"
                       "&negativeAckRedeliveryDelay=0&receiverQueueSize=1")  # fmt: skip
    sockets(f"producer/{topic}").produce(b"one")

    assert consumer.receive()["redeliveryCount"] == 0
    assert consumer.receive()["redeliveryCount"] == 1


def test_a_message_returned_too_often_becomes_a_dead_letter(sockets, topic):
    letters = sockets(f"consumer/{topic}-s-DLQ/letters")
    consumer = sockets(f"consumer/{topic}/s?subscriptionType=Shared&maxRedeliverCount=1"
                       "&negativeAckRedeliveryDelay=0")  # fmt: skip
    sockets(f"producer/{topic}").produce(b"bad", properties={"a": "b"}, key="k")
    for _ in range(2):
        consumer.send(type="negativeAcknowledge", messageId=consumer.receive()["messageId"])

    letter = letters.receive()
    assert (base64.b64decode(letter["payload"]), letter["key"]) == (b"bad", "k")
    assert letter["properties"]["a"] == "b"
    assert letter["properties"]["REAL_TOPIC"] == topic.replace("/", "://", 1)


def test_a_pulling_consumer_gets_what_it_permits(sockets, topic):
    consumer = sockets(f"consumer/{topic}/s?pullMode=true")
    producer = sockets(f"producer/{topic}")
    for number in range(3):
        producer.produce(b"%d" % number)
    consumer.send(type="isEndOfTopic")
    assert consumer.receive() == {"endOfTopic": False}, "no message before a permit"
    consumer.send(type="permit", permitMessages=2)

    assert [consumer.take(), consumer.take()] == [b"0", b"1"]
    consumer.send(type="isEndOfTopic")
    assert consumer.receive() == {"endOfTopic": False}


def test_the_end_of_a_terminated_topic_is_known(server, sockets, topic):
    consumer, reader = sockets(f"consumer/{topic}/s"), sockets(f"reader/{topic}")
    sockets(f"producer/{topic}").produce(b"last")
    assert consumer.take() == b"last"
    reader.take()
    assert httpx.post(f"http://{server.doors['http']}/admin/v2/{topic}/terminate").is_success
    for each in (consumer, reader):
        while True:
            each.send(type="isEndOfTopic")
            if each.receive()["endOfTopic"]:
                break


def test_a_reader_starts_at_any_message(sockets, topic):
    producer = sockets(f"producer/{topic}")
    ids = [producer.produce(each)["messageId"] for each in (b"one", b"two", b"three")]

    earliest = sockets(f"reader/{topic}?messageId=earliest")
    assert [earliest.take() for _ in ids] == [b"one", b"two", b"three"]
    second = sockets(f"reader/{topic}?messageId={ids[0].replace('=', '%3D').replace('+', '%2B')}")
    assert second.take() == b"two"
    latest = sockets(f"reader/{topic}")
    producer.produce(b"four")
    assert latest.take() == b"four"


def test_messages_of_all_partitions_come_and_are_acknowledged(server, sockets, topic):
    admin = f"http://{server.doors['http']}/admin/v2/{topic}"
    assert httpx.put(f"{admin}/partitions", content=b"3").is_success
    consumer = sockets(f"consumer/{topic}/s")
    producer = sockets(f"producer/{topic}?messageRoutingMode=RoundRobinPartition")
    sent = {b"%d" % number for number in range(30)}
    for each in sent:
        assert producer.produce(each)["result"] == "ok"

    assert {consumer.take() for _ in sent} == sent
    consumer.send(type="unsubscribe")
    for _ in range(2):
        consumer.send(type="isEndOfTopic")
        assert consumer.receive() == {"endOfTopic": False}, "it gets no messages any more"
        producer.produce(b"more")


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("{", "send-error:3"),
        ('{"payload": 7}', "send-error:3"),
        ("[" * 100_000, "send-error:3"),
        ('{"context": "c"}', "send-error:7"),
        ('{"payload": "%%", "context": "c"}', "send-error:7"),
        ('{"payload": "YQ==", "eventTime": "never", "context": "c"}', "send-error:7"),
        ('{"payload": "YQ==", "encryptionParam": "x", "context": "c"}', "send-error:7"),
    ],
)
def test_a_message_that_cannot_be_read_is_answered(sockets, topic, text, result):
    producer = sockets(f"producer/{topic}")
    producer.made.send(text)

    answer = producer.receive()
    assert answer["result"] == result
    assert answer.get("context") == ("c" if result == "send-error:7" else None)
    assert producer.produce(b"next")["result"] == "ok"


@pytest.mark.parametrize("text", ["{", "{}", '{"messageId": "%%"}', '{"type": "permit"}'])
def test_a_command_that_cannot_be_read_closes(sockets, topic, text):
    consumer = sockets(f"consumer/{topic}/s")
    consumer.made.send(text)

    code, frame = consumer.made.recv_data()
    assert code == websocket.ABNF.OPCODE_CLOSE
    assert int.from_bytes(frame[:2], "big") == 1003


def test_a_message_that_is_too_large_closes(sockets, topic):
    producer = sockets(f"producer/{topic}")
    answer = producer.produce(b"x" * (5 << 20))
    assert answer["result"] == "send-error:8"
    try:
        producer.made.send('{"payload": "' + "x" * (9 << 20))
        code, frame = producer.made.recv_data()
        assert code == websocket.ABNF.OPCODE_CLOSE
        assert int.from_bytes(frame[:2], "big") == 1009
    except ConnectionError:  # the rest of the message was not read any more
        pass


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("consumer/{topic}/s?subscriptionType=Any", 400),
        ("consumer/{topic}/s?receiverQueueSize=many", 400),
        ("consumer/{topic}/s?ackTimeoutMillis=5", 400),
        ("consumer/{topic}/s?cryptoFailureAction=FAIL", 400),
        ("producer/{topic}?compressionType=RAR", 400),
        ("producer/{topic}?messageRoutingMode=Any", 400),
        ("producer/{topic}?encryptionKeys=k", 400),
        ("reader/{topic}?messageId=%25%25", 400),
        ("reader/volatile/public/default/x", 400),
        ("reader/persistent/public/nowhere/x", 404),
    ],
)
def test_a_query_that_cannot_be_served_is_refused(server, topic, path, status):
    found, reason = refusal(server.doors["http"], path.format(topic=topic))
    assert (found, bool(reason)) == (status, True), reason


def test_a_busy_subscription_refuses_an_exclusive_consumer(server, sockets, topic):
    sockets(f"consumer/{topic}/s")
    assert refusal(server.doors["http"], f"consumer/{topic}/s")[0] == 409
    sockets(f"producer/{topic}?producerName=p")
    assert refusal(server.doors["http"], f"producer/{topic}?producerName=p")[0] == 409


def test_the_page_of_another_server_is_refused(server, topic):
    address = server.doors["http"]
    how = {"suppress_origin": False, "origin": "http://elsewhere.example"}
    assert refusal(address, f"reader/{topic}", **how)[0] == 403
    assert refusal(address, f"reader/{topic}?token=any", **how)[0] == 403
    own = Socket(address, f"reader/{topic}", suppress_origin=False, origin=f"http://{address}")
    own.close()


SCRIPT = """
const at = process.argv[1], topic = process.argv[2];
const consumer = new WebSocket(`ws://${at}/ws/v2/consumer/${topic}/s`);
consumer.onmessage = (event) => {
  const message = JSON.parse(event.data);
  console.log(Buffer.from(message.payload, "base64").toString());
  consumer.send(JSON.stringify({messageId: message.messageId}));
  consumer.close();
};
consumer.onopen = () => {
  const producer = new WebSocket(`ws://${at}/ws/v2/producer/${topic}`);
  producer.onopen = () => producer.send(JSON.stringify({payload: "%s"}));
  producer.onmessage = (event) => { console.log(JSON.parse(event.data).result); producer.close(); };
};
"""


@pytest.mark.full
def test_the_websocket_of_node_js_works(server, topic):
    require_program("node")
    script = SCRIPT.replace("%s", encode(b"from node"))
    command = ["node", "--experimental-websocket", "-e", script, server.doors["http"], topic]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert sorted(done.stdout.split("\n")[:2]) == ["from node", "ok"], done.stderr
