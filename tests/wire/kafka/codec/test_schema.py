"""The declaration language: valid declarations, and the types that type checkers see."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from mypy import api as mypy

from tests.wire.kafka.samples import Everything, Named, Point
from trilogue.wire.kafka.api import MESSAGES
from trilogue.wire.kafka.codec.compile import decoder
from trilogue.wire.kafka.codec.schema import int32, is_message, message, since, string, table


def test_every_field_has_a_default():
    for pair in MESSAGES.values():
        for cls in pair:
            assert cls() == cls()


def test_messages_take_keywords_only():
    with pytest.raises(TypeError):
        Point(1, 2.0)  # type: ignore[misc]


def test_messages_have_slots():
    with pytest.raises(AttributeError):
        Named().nmae = "x"  # type: ignore[attr-defined]


def test_a_default_is_what_was_declared_or_the_types_zero():
    made = Everything()

    assert (made.small, made.old, made.real, made.text, made.data) == (0, 9, 0.0, "", b"")
    assert (made.identity, made.raw, made.maybe_data, made.numbers) == (bytes(16), None, b"", [])
    assert made.point == Point(x=-1, y=0.0)
    assert made.maybe is None


def test_the_table_holds_what_was_declared():
    known = {field.name: field for field in table(Everything).fields}

    assert [field.name for field in dataclasses.fields(Everything)] == list(known)
    assert known["old"].present(1)
    assert not known["old"].present(2)
    assert known["tagged_text"].present(3)
    assert not known["tagged_text"].is_tagged(3)
    assert known["tagged_text"].is_tagged(4)
    assert not known["maybe_text"].nullable(1)
    assert known["maybe_text"].nullable(2)
    assert 5 in table(Everything)
    assert 6 not in table(Everything)
    assert is_message(Everything)
    assert not is_message(int)


class NoSince:
    number: int32 = 3


class SilentNull:
    name: string | None = since(0)


class UndeclaredNull:
    name: string = since(0, null=1)


class SharedMutable:
    named: Named = since(0)


class TwoTypes:
    odd: int32 | string = since(0)


@pytest.mark.parametrize(
    ("cls", "why"),
    [
        (NoSince, "needs since"),
        (SilentNull, "must agree"),
        (UndeclaredNull, "must agree"),
        (SharedMutable, "must be frozen"),
        (TwoTypes, "not one type or None"),
    ],
)
def test_a_contradictory_declaration_is_refused_at_once(cls: type, why: str):
    with pytest.raises(AssertionError, match=why):
        message()(cls)


@message()
class Nothing:
    late: int32 = since(9)


@message()
class ManyNothings:
    nothings: list[Nothing] = since(0)


def test_an_array_that_nothing_bounds_is_refused():
    with pytest.raises(AssertionError, match="nothing bounds their number"):
        decoder(ManyNothings, 0)
    decoder(ManyNothings, 9)


GOOD = """
from trilogue.wire.kafka.codec.compile import decoder, encoder, gatherer
from trilogue.wire.kafka.fetch import FetchRequest, FetchTopic, PartitionData

request = FetchRequest(topics=[FetchTopic(topic="a")], max_wait_ms=5)
again, end = decoder(FetchRequest, 11)(b"")
wait: int = again.max_wait_ms + end
name: str = again.topics[0].topic
encoder(FetchRequest, 11)(request, bytearray())
buffers = gatherer(FetchRequest, 11)(request, bytearray())
first: bytes | bytearray | memoryview = buffers[0]
PartitionData(records=[memoryview(b""), b""])
PartitionData(records=None)
"""
BAD = {
    "FetchRequest(max_wait='x')": 'Unexpected keyword argument "max_wait"',
    "FetchRequest(max_wait_ms='x')": 'Argument "max_wait_ms" to "FetchRequest" has incompatible',
    "FetchRequest(1)": "Too many positional arguments",
    "request.topics[0].tpoic": 'has no attribute "tpoic"',
    "encoder(FetchTopic, 1)(request, bytearray())": 'incompatible type "FetchRequest"',
    "PartitionData().current_leader.leader_id = 1": 'Property "leader_id" defined in',
}


def test_type_checkers_see_plain_dataclasses(tmp_path: Path):
    module = tmp_path / "uses.py"
    module.write_text(GOOD + "\n".join(BAD) + "\n")
    first_bad = GOOD.count("\n") + 1

    out, _, _ = mypy.run(
        ["--strict", "--no-error-summary", "--cache-dir", str(tmp_path / "cache"), str(module)]
    )

    problems: dict[int, str] = {}
    for line in out.splitlines():
        number = int(line.split(":")[1])
        problems[number] = problems.get(number, "") + line
    assert list(problems) == list(range(first_bad, first_bad + len(BAD)))
    for number, why in enumerate(BAD.values(), first_bad):
        assert why in problems[number]
