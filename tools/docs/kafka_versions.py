"""The table of all API keys and versions: the answers of Trilogue and of real Kafkas."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from tools.docs.blocks import table
from tools.kafka_answers import internal
from tools.kafka_answers.versions import LISTENERS, names, read_recorded

OURS, REAL = "trilogue", ("kafka 3.9.1", "kafka 4.3.1")
REASONS = {
    ("open", 24): "the request names no transaction; a real Kafka never answers it",
    ("login", 36): "before SaslHandshake: ILLEGAL_SASL_STATE, so the client learns the reason",
}
"""Listener and API key to the reason for which neither real Kafka answers as Trilogue does."""


def versions() -> str:
    """One row for the versions of an API that get the same answers."""
    walks = read_recorded()
    columns = [walks[server][listener] for listener in LISTENERS for server in (OURS, *REAL)]
    rows = []
    for key, name in names().items():
        answers = zip(*(walk[str(key)] for walk in columns), strict=True)
        for same, group in groupby(enumerate(answers), key=lambda each: each[1]):
            rows.append((key, name, _span([version for version, _ in group]), *same))
    servers = ("Trilogue", "3.9.1", "4.3.1")
    login = tuple(f"{server}, no login yet" for server in servers)
    return table(("key", "request", "versions", *servers, *login), rows)


def between_brokers() -> str:
    """One row for the versions of a case that get the same answers at the internal listener."""
    recorded = internal.read_recorded()
    ours, real = recorded[internal.OURS], recorded[internal.REAL]
    rows = []
    for key, cases in sorted(ours.items(), key=lambda each: int(each[0])):
        for case, answers in cases.items():
            pairs = enumerate(zip(answers, real[key][case], strict=True))
            for same, group in groupby(pairs, key=lambda each: each[1]):
                if any(same):
                    span = _span([version for version, _ in group])
                    rows.append((key, names()[int(key)], case, span, *same))
    return table(("key", "request", "case", "versions", "Trilogue", "3.9.1"), rows)


def differences() -> str:
    """One row for the versions of an API that neither real Kafka answers as Trilogue does."""
    head = ("listener", "key", "request", "versions", "Trilogue", "3.9.1", "4.3.1", "reason")
    return table(head, _differences())


def _differences() -> Iterator[tuple[object, ...]]:
    walks = read_recorded()
    for listener in LISTENERS:
        for key, name in names().items():
            answers = zip(
                *(walks[server][listener][str(key)] for server in (OURS, *REAL)), strict=True
            )
            for same, group in groupby(enumerate(answers), key=lambda each: each[1]):
                if same[0] not in same[1:]:
                    span = _span([version for version, _ in group])
                    yield listener, key, name, span, *same, REASONS[listener, key]


def _span(numbers: list[int]) -> str:
    return f"{numbers[0]}-{numbers[-1]}" if len(numbers) > 1 else str(numbers[0])
