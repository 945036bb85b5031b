"""TubeMQ's own Java client reads: the same rules on ours and on the real server."""

from __future__ import annotations

import pytest

from tests.brokers import TubeBroker
from tests.conformance.clients.base import Deadline
from tests.conformance.clients.tubemq import Client, ClientError, Consumer, Out, Read

pytestmark = pytest.mark.java
END, INVALID, OCCUPIED, SAME_NODE = 404, 400, 410, 430


def numbers(topic: str, first: int, last: int, **words: object) -> list[Out]:
    return [Out(topic, b"%d" % number, **words) for number in range(first, last)]  # type: ignore[arg-type]


def values(reads: list[Read] | tuple[Read, ...]) -> list[int]:
    return [int(read.body) for read in reads]


@pytest.fixture
def topic(tube: TubeBroker) -> str:
    return tube.topic()


def fill(client: Client, topic: str, first: int, last: int, **words: object) -> None:
    client.filler(topic).sent(*numbers(topic, first, last, **words))


def test_a_group_goes_on_where_it_confirmed(tube_client: Client, topic: str):
    fill(tube_client, topic, 0, 10)
    first = tube_client.pull("goes_on", {topic: []})
    assert values(first.receive(10)) == [*range(10)]
    first.close()
    fill(tube_client, topic, 10, 15)

    second = tube_client.pull("goes_on", {topic: []})

    assert values(second.receive(5)) == [10, 11, 12, 13, 14]
    assert second.nothing_comes()


def test_get_at_the_end_fails_and_later_messages_are_read(tube_client: Client, topic: str):
    consumer = tube_client.pull("waits", {topic: []})
    consumer.wait_for_partitions(1)
    got = consumer.get()
    assert (got.ok, got.code, got.messages) == (False, END, ())
    fill(tube_client, topic, 0, 3)

    assert values(consumer.receive(3)) == [0, 1, 2]


def test_unconsumed_batch_is_read_again(tube_client: Client, topic: str):
    fill(tube_client, topic, 0, 5)
    consumer = tube_client.pull("rolls_back", {topic: []})
    consumer.wait_for_partitions(1)
    taken = consumer.get()
    assert values(taken.messages) == [0, 1, 2, 3, 4]
    assert consumer.confirm(taken, consumed=False).ok

    again = consumer.get()

    assert values(again.messages) == [0, 1, 2, 3, 4]
    assert consumer.confirm(again).ok
    assert consumer.nothing_comes()


def test_unconfirmed_messages_are_read_by_the_next_member(tube_client: Client, topic: str):
    fill(tube_client, topic, 0, 5)
    first = tube_client.pull("not_confirmed", {topic: []})
    first.wait_for_partitions(1)
    assert values(first.get().messages) == [0, 1, 2, 3, 4]
    first.close()

    second = tube_client.pull("not_confirmed", {topic: []})

    assert values(second.receive(5)) == [0, 1, 2, 3, 4]


def test_a_confirm_that_is_not_known_is_refused(tube_client: Client, topic: str):
    fill(tube_client, topic, 0, 2)
    consumer = tube_client.pull("confirms", {topic: []})
    taken = consumer.get()
    consumer.confirm(taken)

    assert consumer.confirm(taken).code == INVALID


def test_a_new_group_may_begin_at_the_end(tube_client: Client, topic: str):
    fill(tube_client, topic, 0, 10)
    consumer = tube_client.pull("late", {topic: []}, position="latest")
    consumer.wait_for_partitions(1)
    assert consumer.nothing_comes()
    fill(tube_client, topic, 10, 12)

    assert values(consumer.receive(2)) == [10, 11]


def test_a_known_group_goes_on_whatever_a_new_one_would_do(tube_client: Client, topic: str):
    fill(tube_client, topic, 0, 5)
    first = tube_client.pull("known", {topic: []})
    first.receive(5)
    first.close()
    fill(tube_client, topic, 5, 10)

    second = tube_client.pull("known", {topic: []}, position="latest")

    assert values(second.receive(5)) == [5, 6, 7, 8, 9]


def test_consumer_with_position_max_starts_at_the_end(tube_client: Client, topic: str):
    fill(tube_client, topic, 0, 5)
    first = tube_client.pull("end", {topic: []})
    first.receive(5)
    first.close()
    fill(tube_client, topic, 5, 10)

    second = tube_client.pull("end", {topic: []}, position="max")

    second.wait_for_partitions(1)
    assert second.nothing_comes()
    fill(tube_client, topic, 10, 12)
    assert values(second.receive(2)) == [10, 11]


def test_groups_do_not_know_each_other(tube_client: Client, topic: str):
    fill(tube_client, topic, 0, 5)

    for group in ("one", "two"):
        assert values(tube_client.pull(group, {topic: []}).receive(5)) == [*range(5)]


@pytest.mark.parametrize("types", [["a"], ["a", "c"], ["nothing"]], ids="+".join)
def test_a_filter_lets_through_what_it_names(tube_client: Client, topic: str, types: list[str]):
    producer = tube_client.producer(topic)
    for number in range(9):
        producer.sent(Out(topic, b"%d" % number, type="abc"[number % 3], time="202611211200"))
    producer.sent(Out(topic, b"9"))
    wanted = [number for number in range(9) if "abc"[number % 3] in types]

    consumer = tube_client.pull(f"filters_{topic}", {topic: types})

    assert values(consumer.receive(len(wanted))) == wanted
    assert consumer.nothing_comes()


def test_several_topics_at_once(tube: TubeBroker, tube_client: Client):
    topics = [tube.topic(), tube.topic(2)]
    for number, topic in enumerate(topics):
        fill(tube_client, topic, number * 10, number * 10 + 10)

    reads = tube_client.pull("several", {topic: [] for topic in topics}).receive(20)

    assert {(read.topic, int(read.body) // 10) for read in reads} == {
        (topics[0], 0),
        (topics[1], 1),
    }
    assert sorted(values(reads)) == [*range(20)]


def test_bound_consumer_starts_at_the_requested_offset(tube_client: Client, topic: str):
    """Bound consumption: the member chooses its offset, whatever the group has confirmed."""
    producer = tube_client.producer(topic)
    results = producer.sent(*numbers(topic, 0, 10))
    first = tube_client.pull("bound", {topic: []})
    first.receive(10)
    first.close()
    bound = {"key": "once", "count": 1, "offsets": {f"1:{topic}:0": results[4].offset}}

    second = tube_client.pull("bound", {topic: []}, bound=bound)

    assert values(second.receive(6)) == [4, 5, 6, 7, 8, 9]


def test_a_bound_group_waits_for_all_its_members(tube: TubeBroker, tube_client: Client):
    topic = tube.topic(4)
    fill(tube_client, topic, 0, 8)
    bound = {"key": "both", "count": 2, "offsets": {}}
    one = tube_client.pull("bound_two", {topic: []}, bound=bound)
    assert not one.ready(2.0)

    two = tube_client.pull("bound_two", {topic: []}, bound=bound)

    everything = {f"1:{topic}:{number}" for number in range(4)}
    assert shares_of([one, two], everything, equal=False)  # the real one deals out 3 and 1


def test_members_with_conflicting_subscriptions_are_refused(
    tube: TubeBroker, tube_client: Client, topic: str
):
    """In topics, filters, or whether they are bound; the client keeps the code to itself."""
    other = tube.topic()
    tube_client.pull("agrees", {topic: ["a"]}).wait_for_partitions(1)

    for topics, words in (
        ({topic: ["a"], other: []}, {}),
        ({topic: ["b"]}, {}),
        ({topic: ["a"]}, {"bound": {"key": "k", "count": 1}}),
    ):
        with pytest.raises(ClientError, match="Register to master failed"):
            tube_client.pull("agrees", topics, **words)


def test_an_unknown_topic_cannot_be_subscribed(tube_client: Client):
    with pytest.raises(ClientError, match="Register to master failed"):
        tube_client.pull("nothing", {"nobody_made_this": []})


def shares_of(
    consumers: list[Consumer], everything: set[str], *, equal: bool = True
) -> list[set[str]]:
    """Who has what, once everything is dealt out, to each its part."""
    deadline = Deadline(f"shares of {everything}")
    while True:
        shares = [set(consumer.positions) for consumer in consumers]
        sizes = {len(share) for share in shares}
        whole = sorted(each for share in shares for each in share) == sorted(everything)
        if whole and 0 not in sizes and (len(sizes) == 1 or not equal):
            return shares
        deadline.check(shares)


def read_all(consumers: list[Consumer], count: int) -> list[list[Read]]:
    """What each of them got, until there is enough in all."""
    found: list[list[Read]] = [[] for _ in consumers]
    deadline = Deadline(f"{count} messages")
    while sum(map(len, found)) < count:
        deadline.check(found)
        for consumer, reads in zip(consumers, found, strict=True):
            got = consumer.get()
            reads.extend(got.messages)
            if got.context:
                consumer.confirm(got)
    return found


def test_two_members_share_and_one_takes_over(tube: TubeBroker, tube_client: Client):
    topic = tube.topic(4)
    everything = {f"1:{topic}:{number}" for number in range(4)}
    fill(tube_client, topic, 0, 40)
    one = tube_client.pull("members", {topic: []})
    assert one.wait_for_partitions(4) == everything
    two = tube_client.pull("members", {topic: []})
    shares = shares_of([one, two], everything)

    found = read_all([one, two], 40)

    assert [{read.partition for read in reads} for reads in found] == shares
    assert sorted(values(found[0] + found[1])) == [*range(40)]
    two.close()
    assert one.wait_for_partitions(4) == everything
    fill(tube_client, topic, 40, 80)
    assert sorted(values(one.receive(40))) == [*range(40, 80)]


def test_a_listener_gets_everything_once(tube: TubeBroker, tube_client: Client):
    topic = tube.topic(4)
    consumer = tube_client.push("listens", {topic: []})
    fill(tube_client, topic, 0, 100)

    assert sorted(values(consumer.taken(100))) == [*range(100)]
    assert consumer.taken_up_to(1, 0.5) == []
    consumer.close()
    fill(tube_client, topic, 100, 120)

    again = tube_client.push("listens", {topic: []})
    assert sorted(values(again.taken(20))) == [*range(100, 120)]


def test_a_listener_with_a_filter(tube_client: Client, topic: str):
    producer = tube_client.producer(topic)
    for number in range(10):
        producer.sent(Out(topic, b"%d" % number, type="eo"[number % 2], time="202611211200"))

    consumer = tube_client.push("listens_odd", {topic: ["o"]})

    assert values(consumer.taken(5)) == [1, 3, 5, 7, 9]


def test_messages_refused_by_a_listener_are_read_again(tube_client: Client, topic: str):
    fill(tube_client, topic, 0, 5)

    consumer = tube_client.push("refuses", {topic: []}, refuse=1)

    reads = consumer.taken(10)
    assert values(reads) == [0, 1, 2, 3, 4] * 2
    assert [read.refused for read in reads] == [True] * 5 + [False] * 5


def test_a_listener_may_pause(tube_client: Client, topic: str):
    fill(tube_client, topic, 0, 5)
    consumer = tube_client.push("pauses", {topic: []})
    consumer.taken(5)
    consumer.pause()
    consumer.taken_up_to(1, 1.0)
    fill(tube_client, topic, 5, 10)
    before = consumer.taken_up_to(5, 1.0)

    consumer.resume()

    assert values(before + consumer.taken(5 - len(before))) == [5, 6, 7, 8, 9]


def test_a_consumer_that_balances_itself(tube: TubeBroker, tube_client: Client):
    """It gets the list of all partitions and registers for some, which no other member has."""
    topic = tube.topic(4)
    parts = [f"1:{topic}:{number}" for number in range(4)]
    tube_client.filler(topic).sent(*numbers(topic, 0, 40))
    members = [
        tube_client.balance("self", {topic: []}, sources=3, node=number) for number in range(3)
    ]
    assert all(member.began.ok for member in members)
    assert [member.meta for member in members] == [dict.fromkeys(parts, True)] * 3
    one, two, three = members

    for part in parts[:2]:
        assert one.attach(part).ok
    reads = one.receive(20)

    assert {read.partition for read in reads} == set(parts[:2])
    assert one.attached == parts[:2]
    assert two.attach(parts[0]).code == OCCUPIED
    assert one.detach(parts[0]).ok
    assert three.attach(parts[0]).ok
    assert three.nothing_comes()


def test_nodes_of_one_number_are_distinguished(tube_client: Client, topic: str):
    assert tube_client.balance("numbers", {topic: []}, sources=2, node=1).began.ok

    again = tube_client.balance("numbers", {topic: []}, sources=2, node=1)

    assert again.began.code == SAME_NODE


def test_client_balance_consumer_chooses_its_start_offset(tube_client: Client, topic: str):
    producer = tube_client.producer(topic)
    results = producer.sent(*numbers(topic, 0, 10))
    consumer = tube_client.balance("self_at", {topic: []})
    assert consumer.meta == {f"1:{topic}:0": True}

    assert consumer.attach(f"1:{topic}:0", results[7].offset).ok

    assert values(consumer.receive(3)) == [7, 8, 9]
