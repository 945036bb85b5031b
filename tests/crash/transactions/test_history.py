"""The checker of histories flags each kind of bad history, and no good one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.crash.transactions.history import History, Outcome, Seen, Transaction, Write


def good() -> History:
    """Two committed transactions over two partitions, one aborted, one unknown that committed."""
    history = History()
    rows = {
        "a": (Outcome.COMMITTED, [0, 1, 0]),
        "b": (Outcome.ABORTED, [0, 1]),
        "c": (Outcome.UNKNOWN, [1, 1]),
        "d": (Outcome.COMMITTED, [0]),
        "e": (Outcome.UNKNOWN, [0, 1]),  # it did not commit
    }
    for name, (outcome, partitions) in rows.items():
        made = history.begin(name)
        made.outcome = outcome
        made.writes = [Write(name, number, part) for number, part in enumerate(partitions)]
    a, c, d = (history.transactions[name] for name in "acd")
    history.final = [
        Seen(0, 0, a.writes[0]),
        Seen(0, 1, a.writes[2]),
        Seen(0, 7, d.writes[0]),
        Seen(1, 0, a.writes[1]),
        Seen(1, 5, c.writes[0]),
        Seen(1, 6, c.writes[1]),
    ]
    history.readers = {"one": history.final[1:3], "two": history.final[3:]}
    history.inputs, history.left = range(4), {2, 3}
    a.acks, c.acks = [0], [1]
    history.transactions["b"].acks, history.transactions["e"].acks = [1], [2]
    c.reads = history.final[:2]
    d.reads = history.final[4:5]
    return history


def drop_all(history: History, name: str) -> None:
    history.final = [each for each in history.final if each.write.transaction != name]
    history.readers.clear()


def transaction(history: History, name: str) -> Transaction:
    return history.transactions[name]


def lose(history: History) -> None:
    drop_all(history, "a")


def tear(history: History) -> None:
    history.final.pop()
    history.readers.clear()


def read_aborted(history: History) -> None:
    history.final.append(Seen(0, 8, transaction(history, "b").writes[0]))
    history.final.append(Seen(1, 9, transaction(history, "b").writes[1]))


def repeat(history: History) -> None:
    history.final.append(Seen(0, 9, transaction(history, "d").writes[0]))


def invent(history: History) -> None:
    history.final.append(Seen(0, 9, Write("d", 1, 0)))


def move(history: History) -> None:
    history.final[2] = Seen(1, 7, transaction(history, "d").writes[0])


def differ(history: History) -> None:
    history.readers["one"] = [Seen(0, 1, transaction(history, "a").writes[0])]


def reorder(history: History) -> None:
    one, two = history.final[:2]
    history.final[:2] = [Seen(0, 0, two.write), Seen(0, 1, one.write)]
    history.readers.clear()
    transaction(history, "c").reads = []


def skip(history: History) -> None:
    history.readers["one"] = [history.final[0], history.final[2]]


def go_back(history: History) -> None:
    history.readers["one"] = [history.final[1], history.final[0]]


def read_own(history: History) -> None:
    transaction(history, "d").reads.append(history.final[2])


def close_cycle(history: History) -> None:
    transaction(history, "a").reads = [history.final[2]]


def ack_twice(history: History) -> None:
    transaction(history, "d").acks = [0]


def lose_ack(history: History) -> None:
    history.left.add(0)


def ack_alone(history: History) -> None:
    history.left.remove(2)


BAD: dict[str, Callable[[History], None]] = {
    "lost": lose,
    "torn": tear,
    "aborted read": read_aborted,
    "duplicate": repeat,
    "never sent": invent,
    "inconsistent offset": differ,
    "reordered": reorder,
    "poll skip": skip,
    "went back": go_back,
    "own read": read_own,
    "cycle": close_cycle,
    "acked twice": ack_twice,
    "lost ack": lose_ack,
    "ack alone": ack_alone,
}


def test_a_good_history_has_no_anomalies():
    assert good().anomalies() == {}


@pytest.mark.parametrize("kind", BAD)
def test_an_anomaly_is_found(kind: str):
    history = good()
    BAD[kind](history)

    assert kind in history.anomalies()


def test_a_message_in_another_partition_is_found():
    history = good()
    move(history)

    assert set(history.anomalies()) == {"never sent"}


def test_a_transaction_of_unknown_end_may_be_missing_as_a_whole():
    history = good()
    drop_all(history, "c")
    history.left.add(1)
    transaction(history, "d").reads = []

    assert history.anomalies() == {}
