"""`trilogue codec` reads what was recorded."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from tests.cli.kafka_cli import Shell
from trilogue.cli.codec_decoded import DecodingError, octets

VECTORS = Path(__file__).parents[1] / "vectors" / "kafka"
REQUEST = VECTORS / "AlterClientQuotasRequest-v1-java-3.9.1.hex"
RESPONSE = VECTORS / "AlterClientQuotasResponse-v1-java-3.9.1.hex"
SHELL = Shell("127.0.0.1:1")


def test_request_frame_is_decoded_by_its_header():
    body = json.loads(SHELL.run("codec", "--frame", stdin=REQUEST.read_bytes()).stdout)

    assert body["header"]["client_id"] == "adminclient-1"
    assert body["message"] == "AlterClientQuotasRequest"
    assert body["fields"]["entries"][0]["ops"][1]["value"] == 1048576.0
    assert "left_over_bytes" not in body


def test_the_length_before_a_frame_and_base64_do_not_matter():
    frame = octets(REQUEST.read_bytes(), "hex")
    packed = base64.b64encode(len(frame).to_bytes(4, "big") + frame)

    body = json.loads(SHELL.run("codec", "--frame", stdin=packed).stdout)

    assert body["header"]["api_key"] == 49


def test_response_frame_is_decoded_by_the_given_api_and_version():
    given = RESPONSE.read_bytes()
    answer = SHELL.run("codec", "--frame", "--response", "alter_client_quotas", "1", stdin=given)

    assert json.loads(answer.stdout)["message"] == "AlterClientQuotasResponse"
    assert "an API and its version" in SHELL.refused(
        "codec", "--frame", "--response", code=2, stdin=given
    )


def test_body_is_decoded_and_left_over_bytes_are_reported():
    body = json.loads(SHELL.run("codec", "--decode", "heartbeat", "0", "--response",
                                stdin="0000ff").stdout)  # fmt: skip

    assert body["fields"]["error_code"] == 0
    assert body["left_over_bytes"] == 1


def test_truncated_input_is_refused():
    assert "cut off" in SHELL.refused("codec", "--decode", "fetch", "11", stdin="0000")
    assert "is this a request" in SHELL.refused("codec", "--frame", stdin="7fff000000000001ffff")


def test_bytes_are_given_in_three_ways():
    assert octets(b"00 ff # no\n01", "auto") == b"\0\xff\1"
    assert octets(b"AP8B/w==", "auto") == b"\0\xff\1\xff"
    assert octets(b"\0\xff\1", "auto") == b"\0\xff\1"
    assert octets(b"00ff", "raw") == b"00ff"
    with pytest.raises(DecodingError, match="no hex"):
        octets(b"xy", "hex")
