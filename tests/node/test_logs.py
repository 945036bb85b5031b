"""Log lines: one line each, in two forms, without secrets."""

from __future__ import annotations

import io
import json
import logging

import pytest

from trilogue.node.logs import start_logging


@pytest.fixture
def stream():
    root = logging.getLogger()
    before = root.handlers[:], root.level, logging.raiseExceptions
    yield io.StringIO()
    root.handlers[:], logging.raiseExceptions = before[0], before[2]
    root.setLevel(before[1])
    logging.captureWarnings(False)


def test_text_is_time_level_event_and_fields(stream):
    start_logging(level="info", form="text", stream=stream)

    logging.getLogger("trilogue.x").info(
        "segment.written", extra={"segment": 7, "took_s": 0.25, "topic": "a b"}
    )

    time, rest = stream.getvalue().split(" ", 1)
    assert time.endswith("Z")
    assert rest == 'INFO    segment.written segment=7 took_s=0.25 topic="a b"\n'


def test_json_is_one_object_a_line(stream):
    start_logging(level="info", form="json", stream=stream)

    try:
        raise ValueError("broken")
    except ValueError:
        logging.getLogger("trilogue.x").exception("flush.failed", extra={"segment": 7})

    (line,) = stream.getvalue().splitlines()
    content = json.loads(line)
    assert (
        content["level"], content["event"], content["segment"], content["logger"],
    ) == ("error", "flush.failed", 7, "trilogue.x")  # fmt: skip
    assert "ValueError: broken" in content["exception"]


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_peer_cannot_write_lines_of_its_own(stream, form):
    start_logging(level="info", form=form, stream=stream)

    logging.getLogger("trilogue.x").info(
        "client.named", extra={"client_id": "x\n2026-01-01T00:00:00Z INFO forged\x1b[2J"}
    )

    assert len(stream.getvalue().splitlines()) == 1
    assert "\x1b" not in stream.getvalue()


@pytest.mark.parametrize("form", ["text", "json"])
def test_secrets_are_not_written(stream, form):
    start_logging(level="info", form=form, stream=stream)

    logging.getLogger("trilogue.x").info(
        "user.made", extra={"user": "anna", "password": "hunter2", "api_token": "hunter2"}
    )

    assert "anna" in stream.getvalue()
    assert "hunter2" not in stream.getvalue()


def test_level_filters_log_lines(stream):
    start_logging(level="warning", form="text", stream=stream)

    logging.getLogger("trilogue.x").info("quiet")
    logging.getLogger("trilogue.x").warning("loud")

    assert "quiet" not in stream.getvalue()
    assert "loud" in stream.getvalue()
