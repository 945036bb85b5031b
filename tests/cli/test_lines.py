"""What `trilogue produce` reads and `trilogue consume` writes."""

from __future__ import annotations

import json

import pytest

from trilogue.cli.messages import produce_lines
from trilogue.cli.messages.consume_format import FormatError, formatter
from trilogue.cli.messages.produce_lines import InputMessage, Lines, LinesError
from trilogue.client.kafka.consumer.message import Message

MESSAGE = Message("orders", 2, 7, 0, b"k", b"\xff", (("h", b"1"), ("none", None)))


def cut(lines: Lines) -> list[tuple[str, bytes]]:
    return [
        (chunk.origin(index), piece)
        for chunk in lines.chunks()
        for index, piece in enumerate(chunk.pieces)
    ]


@pytest.fixture
def file(tmp_path):
    made = tmp_path / "in"
    made.write_bytes(b"one\ntwo\n\nlast")
    return made


def test_lines_are_cut_wherever_the_reads_end(file, monkeypatch):
    monkeypatch.setattr(produce_lines, "CHUNK", 2)

    found = cut(Lines(files=[file]))

    assert [piece for _, piece in found] == [b"one", b"two", b"", b"last"]
    assert [name for name, _ in found] == [f"{file}:{number}" for number in (1, 2, 3, 4)]


def test_other_delimiters_and_whole_files(file):
    assert [piece for _, piece in cut(Lines(files=[file], delimiter="\\0"))] == [file.read_bytes()]
    assert cut(Lines(files=[file], whole=True)) == [(str(file), file.read_bytes())]


def test_an_empty_file_is_no_message_unless_it_is_one_as_a_whole(tmp_path):
    empty = tmp_path / "empty"
    empty.touch()

    assert cut(Lines(files=[empty])) == []
    assert cut(Lines(files=[empty], whole=True)) == [(str(empty), b"")]


def test_a_file_without_line_ends_is_not_read_into_memory(file, monkeypatch):
    monkeypatch.setattr(produce_lines, "LINE_MAX", 3)

    with pytest.raises(LinesError, match="longer than"):
        cut(Lines(files=[file]))


def test_keys_values_and_tombstones():
    lines = Lines(files=[], separator="\\t", tombstones=True, headers=(("a", "b"),))

    assert lines.message(b"k\tv\tw") == InputMessage(b"k", b"v\tw", (("a", b"b"),))
    assert lines.message(b"k\t") == InputMessage(b"k", None, (("a", b"b"),))
    with pytest.raises(LinesError, match="after a key"):
        lines.message(b"no key")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "no JSON"),
        ("[1]", "expected an object"),
        ('{"worth": 1}', "unknown 'worth'"),
        ('{"key_base64": "!"}', "no base64"),
        ('{"timestamp": "now"}', "whole number"),
        ('{"partition": -1}', "whole number"),
        ('{"headers": [1]}', "headers"),
        ('{"headers": "x"}', "headers"),
    ],
)
def test_invalid_json_line_is_refused_with_the_reason(text, why):
    with pytest.raises(LinesError, match=why):
        Lines(files=[], as_json=True).message(text.encode())


@pytest.mark.parametrize(
    "wrong",
    [
        {"value": "x", "as_json": True},
        {"as_json": True, "key": "k"},
        {"key": "k", "separator": ":"},
        {"separator": ""},
        {"delimiter": ""},
    ],
)
def test_options_that_contradict_each_other_are_refused(wrong):
    with pytest.raises(LinesError):
        Lines(files=[], **wrong)


def test_json_lines_of_consume_are_accepted_by_produce():
    line = formatter(None, as_json=True, keys=False)(MESSAGE)

    assert json.loads(line)["value_base64"] == "/w=="
    assert Lines(files=[], as_json=True).message(line) == InputMessage(
        b"k", b"\xff", (("h", b"1"), ("none", None)), 0, 2
    )


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{topic}-{partition}:{offset}", b"orders-2:7\n"),
        ("{key}\\t{value}\\\\", b"k\t\xff\\\n"),
        ("{time} {timestamp}", b"1970-01-01T00:00:00.000Z 0\n"),
        ("{headers}", b"h=1,none=\n"),
    ],
)
def test_templates_name_fields(template, expected):
    assert formatter(template, as_json=False, keys=False)(MESSAGE) == expected


def test_a_template_with_an_unknown_field_is_refused():
    with pytest.raises(FormatError, match="there are topic"):
        formatter("{nope}", as_json=False, keys=False)
