"""A server killed or stopped and started again, as Pulsar's libraries see it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.brokers import PulsarBroker
from tests.conformance.clients.base import Deadline
from tests.conformance.clients.pulsar import Connection, In, Out, PulsarLibrary, Receiver, connect
from tests.conformance.clients.pulsar_libraries import ALL, each
from tests.conformance.pulsar.test_clients import numbers, values

End = Callable[[PulsarBroker], object]
ENDS = pytest.mark.parametrize(
    "end",
    [
        pytest.param(lambda broker: broker.kill9(), id="kill9"),
        pytest.param(lambda broker: broker.stop(), id="sigterm"),
    ],
)
LIBRARIES = pytest.mark.parametrize("library", each())
SECONDS = 60.0  # the libraries try again after up to as long

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def own_connection(own_pulsar: PulsarBroker, library: PulsarLibrary) -> Iterator[Connection]:
    made = connect(library, f"pulsar://{own_pulsar.address}")
    yield made
    made.close()


def until(consumer: Receiver, wanted: set[int]) -> list[In]:
    """Receive and ack until all values came."""
    reads: list[In] = []
    deadline = Deadline("all values", SECONDS)
    while not wanted <= {int(read.value or b"-1") for read in reads}:
        deadline.check(values(reads))
        more = consumer.receive_up_to(50, 0.2)
        consumer.ack(*more)
        reads += more
    return reads


@ENDS
@LIBRARIES
def test_clients_that_stay_lose_nothing(
    own_pulsar: PulsarBroker, own_connection: Connection, end: End
):
    """Sent before, in the middle and after: everything arrives; what was acked before stays so."""
    producer = own_connection.producer("topic", send_timeout_ms=90_000)
    consumer = own_connection.consumer("topic", "s", type="shared", earliest=True)
    producer.send(*numbers(0, 50))
    before = until(consumer, {*range(50)})
    assert values(before) == [*range(50)]

    end(own_pulsar)
    sending = producer.start_sending(*numbers(50, 100))
    own_pulsar.start()

    producer.ids(sending)
    producer.send(*numbers(100, 150))
    after = until(consumer, {*range(50, 150)})
    first_seen = list(dict.fromkeys(number for number in values(after) if number >= 50))
    assert first_seen == [*range(50, 150)]


@ENDS
def test_messages_and_positions_survive(own_pulsar: PulsarBroker, end: End):
    url = f"pulsar://{own_pulsar.address}"
    before: dict[str, list[In]] = {}
    for library in ALL:
        connection = connect(library, url)
        connection.producer(library.name, batching=True, compression="zstd").send(*numbers(0, 20))
        consumer = connection.consumer(library.name, "s", earliest=True)
        before[library.name] = consumer.receive(20)
        consumer.ack(before[library.name][9], cumulative=True)
        connection.close()

    end(own_pulsar)
    own_pulsar.start()

    for library in ALL:
        connection = connect(library, url)
        again = connection.reader(library.name).receive(20)
        assert [(r.content, r.offset, r.ledger) for r in again] == [
            (r.content, r.offset, r.ledger) for r in before[library.name]
        ]
        consumer = connection.consumer(library.name, "s")
        rest = [*consumer.receive(10), *consumer.receive_up_to(30)]
        assert values(rest)[-10:] == [*range(10, 20)]
        connection.close()


@pytest.mark.parametrize("library", each(can="receipts"))
def test_messages_acked_with_a_receipt_are_not_redelivered(
    own_pulsar: PulsarBroker, own_connection: Connection
):
    """Only ours: a real broker answers before the position is kept (seconds later)."""
    if own_pulsar.name != "trilogue":
        pytest.skip("a promise of our own server")
    own_connection.producer("topic", batching=True).send(*numbers(0, 30))
    words = {"type": "shared", "receipts": True, "batch_index": True}
    consumer = own_connection.consumer("topic", "s", earliest=True, **words)
    reads = consumer.receive(30)
    consumer.ack(*reads[:5], *reads[10:20])

    own_pulsar.kill9()
    own_pulsar.start()

    wanted = {*range(5, 10), *range(20, 30)}
    assert {*values(until(consumer, wanted))} == wanted


@LIBRARIES
def test_a_reader_goes_on_where_it_was(own_pulsar: PulsarBroker, own_connection: Connection):
    producer = own_connection.producer("topic", batching=True, send_timeout_ms=90_000)
    reader = own_connection.reader("topic")
    producer.send(*numbers(0, 10))
    reader.receive(4)

    own_pulsar.kill9()
    own_pulsar.start()
    producer.send(Out(b"10"))

    assert values(reader.receive(7, SECONDS)) == [*range(4, 11)]


@pytest.mark.parametrize("library", each())
def test_sequences_survive_for_de_duplication(own_pulsar: PulsarBroker, own_connection: Connection):
    from tests.conformance.pulsar.pulsar_admin import Admin

    admin = Admin(own_pulsar.http)
    admin.make_namespace("public/once")
    admin.deduplicate("public/once")
    topic = "persistent://public/once/t"
    producer = own_connection.producer(topic, name="p")
    producer.send(*(Out(b"%d" % n, sequence=n) for n in range(10)))
    producer.close()

    own_pulsar.kill9()
    own_pulsar.start()

    again = own_connection.producer(topic, name="p")
    again.send(*(Out(b"%d" % n, sequence=n) for n in range(5, 15)))
    reader = own_connection.reader(topic)
    assert values(reader.receive(15)) == [*range(15)]
    assert reader.nothing_comes()


@pytest.mark.full
@pytest.mark.parametrize("library", each(can="transactions"))
def test_an_open_transaction_survives_kill9(own_pulsar: PulsarBroker, library: PulsarLibrary):
    """What it sent stays unseen, what it acked stays unseen too; both are decided afterwards."""
    address = f"pulsar://{own_pulsar.address}"
    made = connect(library, address, transactions=True)
    made.producer("source").send(*numbers(0, 4))
    consumer = made.consumer("source", "s", type="shared", earliest=True)
    reads = consumer.receive(4)
    producer = made.producer("target", send_timeout_ms=0)
    committed, aborted = made.begin(), made.begin()
    producer.send(*numbers(0, 2), transaction=committed)
    consumer.ack(*reads[:2], transaction=committed)
    producer.send(*numbers(2, 4), transaction=aborted)
    consumer.ack(reads[2], transaction=aborted)
    consumer.close()

    own_pulsar.kill9()
    own_pulsar.start()

    other = connect(library, address)
    left = other.consumer("source", "s", type="shared", earliest=True)
    results = other.consumer("target", "s", earliest=True)
    assert values(left.receive(1, SECONDS)) == [3]
    assert left.nothing_comes()
    assert results.nothing_comes()
    aborted.abort()
    assert values(left.receive(1)) == [2]
    committed.commit()
    assert values(results.receive(2)) == [0, 1]
    assert left.nothing_comes()
    left.close()
    again = other.consumer("source", "s", type="shared", earliest=True)
    assert values(again.receive(2)) == [2, 3]
    assert again.nothing_comes()
    made.close()
    other.close()
