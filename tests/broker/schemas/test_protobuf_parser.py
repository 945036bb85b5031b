"""What a parse of a .proto text leaves in memory."""

from __future__ import annotations

import gc
from contextlib import suppress

import pytest

from trilogue.broker.errors import InvalidSchema
from trilogue.broker.schemas.protobuf_parser import parse_proto

pytest.importorskip("proto_schema_parser")

FIELDS = "".join(f"int32 f{number} = {number + 1};" for number in range(10))
GOOD = f'syntax = "proto3"; message M {{{FIELDS}}}'


def count_parts() -> int:
    """How many tokens and leaves of trees are in memory."""
    names = {"CommonToken", "TerminalNodeImpl"}
    return sum(type(each).__name__ in names for each in gc.get_objects())


@pytest.mark.parametrize(
    "text",
    [GOOD, GOOD[:-1] + " int32 x", GOOD.replace("f9 = 10", "f9 = 1"), GOOD + "extend M {}"],
    ids=["good", "cut", "a number twice", "not served"],
)
def test_a_parse_leaves_no_tree_to_the_garbage_collector(text: str):
    """It comes once a minute, and a client may send hundreds of texts until then."""
    parse_proto(GOOD, [], "first")
    gc.collect()
    before = count_parts()
    gc.disable()
    try:
        with suppress(InvalidSchema):
            parse_proto(text, [], "second")
        assert count_parts() - before < 10
    finally:
        gc.enable()
