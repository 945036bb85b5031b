"""Delegation tokens by Kafka's own tool, and Java clients that log in with them (KIP-48)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conformance.clients.java import CONSOLE_CONSUMER, OLD_CONSOLE_PRODUCER, Java
from tests.conformance.clients.kafka_tools import TOOLS, ToolOutput, Tools
from tests.conformance.conftest import unique
from tests.server import Server, start_server

TOKENS = "org.apache.kafka.tools.DelegationTokenCommand"
TOPICS, PRODUCER = "org.apache.kafka.tools.TopicCommand", "org.apache.kafka.tools.ConsoleProducer"
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
HMAC = r"[A-Za-z0-9+/]{86}=="

pytestmark = [pytest.mark.full, pytest.mark.java, pytest.mark.timeout(300)]


class Token(NamedTuple):
    """A row of what the tool prints."""

    token_id: str
    hmac: str
    row: str


class Secured:
    """A node as `--secure` makes it, and a tool that logs in as its administrator."""

    def __init__(self, server: Server, tools: Tools) -> None:
        self.server, self.tools = server, tools
        self.admin = server.data / "clients" / "kafka.properties"
        self.address = server.doors["kafka-sasl-ssl"]

    def run(self, *arguments: str, config: Path | None = None) -> ToolOutput:
        at = ("--bootstrap-server", self.address, "--command-config", config or self.admin)
        return self.tools.run(TOKENS, *at, *arguments)

    def create(self, *arguments: str) -> Token:
        done = self.run("--create", "--max-life-time-period", "-1", *arguments)
        assert done.status == 0, done.text
        (token,) = find_tokens(done.text)
        return token

    def describe(self, *arguments: str, config: Path | None = None) -> dict[str, Token]:
        done = self.run("--describe", *arguments, config=config)
        assert done.status == 0, done.text
        return {token.token_id: token for token in find_tokens(done.text)}

    def login_file(self, token: Token, name: str = "token.properties") -> Path:
        """The administrator's file with the token in place of the password."""
        login = f'{MODULE} required username="{token.token_id}" password="{token.hmac}"'
        lines = [
            f'sasl.jaas.config={login} tokenauth="true";' if line.startswith("sasl.jaas") else line
            for line in self.admin.read_text().splitlines()
        ]
        path = self.server.data.parent / name
        path.write_text("\n".join(lines))
        return path


def find_tokens(text: str) -> list[Token]:
    return [
        Token(found[1], found[2], found[0])
        for found in re.finditer(rf"^([\w-]{{22}})\s+({HMAC})\s.*$", text, re.MULTILINE)
    ]


@pytest.fixture(params=TOOLS, ids=lambda tools: tools.version)
def secured(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Secured]:
    tools: Tools = request.param
    tools.require()
    with start_server(tmp_path / "data", arguments=["--secure"]) as server:
        yield Secured(server, tools)


def test_the_tool_makes_describes_renews_and_expires(secured: Secured):
    token = secured.create("--renewer-principal", "User:renewer")
    other = secured.create("--owner-principal", "User:robot")
    assert "User:renewer" in token.row
    assert "User:robot" in other.row

    admin, robot = ("--owner-principal", "User:admin"), ("--owner-principal", "User:robot")
    assert secured.describe(*admin, *robot) == {token.token_id: token, other.token_id: other}
    assert set(secured.describe(*robot)) == {other.token_id}
    assert secured.describe() == {}, "the tool requests the tokens of no owner"

    renewed = secured.run("--renew", "--renew-time-period", "3600000", "--hmac", token.hmac)
    assert renewed.status == 0, renewed.text
    assert "Completed renew operation" in renewed.text
    expired = secured.run("--expire", "--expiry-time-period", "-1", "--hmac", token.hmac)
    assert expired.status == 0, expired.text
    assert "Completed expire operation" in expired.text
    assert set(secured.describe(*admin)) == {other.token_id}, "the admin is its requester"
    again = secured.run("--renew", "--renew-time-period", "-1", "--hmac", token.hmac)
    assert "Delegation Token is not found" in again.text


def test_java_clients_log_in_with_a_token_also_after_a_kill(secured: Secured):
    java, topic = Java(secured.tools.version), unique("tokens")
    token = secured.create()
    config = secured.login_file(token)
    refused = secured.run("--describe", config=config)
    assert "not allowed on" in refused.text, refused.text
    secured.server.kill9()
    with start_server(secured.server.data, listen=secured.server.doors):
        at = ("--bootstrap-server", secured.address)
        made = secured.tools.run(
            TOPICS, *at, "--command-config", config, "--create", "--topic", topic
        )
        assert made.status == 0, made.text
        named = "--command-config" if java.since_4 else "--producer.config"
        main = PRODUCER if java.since_4 else OLD_CONSOLE_PRODUCER
        java.run(main, *at, f"--topic={topic}", f"{named}={config}", given=b"one\ntwo\n")
        named = "--command-config" if java.since_4 else "--consumer.config"
        read = java.run(
            CONSOLE_CONSUMER,
            *at,
            f"--topic={topic}",
            f"{named}={config}",
            "--from-beginning",
            "--max-messages=2",
            "--timeout-ms=60000",
        )
        assert read.splitlines() == ["one", "two"]


def test_a_token_login_makes_no_tokens_and_another_hmac_is_no_login(secured: Secured):
    token = secured.create("--owner-principal", "User:alice")
    made = secured.run("--create", "--max-life-time-period", "-1", config=secured.login_file(token))
    assert "not allowed on" in made.text, made.text

    wrong = secured.login_file(token._replace(hmac="A" * 86 + "=="), "wrong.properties")
    refused = secured.run("--describe", config=wrong)
    assert "the user or the password is wrong" in refused.text, refused.text
