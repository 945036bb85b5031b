"""Delegation tokens of a node: the file of their secret, their expiry, and a kill -9."""

from __future__ import annotations

import asyncio
import base64
import stat
from pathlib import Path

import pytest

from tests.broker.topics.test_namespaces import House
from tests.gateway.loop import on_loop
from tests.security.live_node import LiveNode
from trilogue.broker.access.audit import AuditLog
from trilogue.broker.access.authorizer import Principal
from trilogue.broker.access.delegation_tokens import DelegationTokenLimits, DelegationTokens
from trilogue.broker.errors import DiskFull, StorageFailed
from trilogue.node.background.token_expiry import DelegationTokenExpiry
from trilogue.node.delegation_tokens import (
    SETTING,
    DelegationTokenKey,
    enable_delegation_tokens,
)
from trilogue.node.errors import StartError
from trilogue.node.settings.sources import load_settings

ALICE = Principal("User", "alice")
NOW_MS = 1_700_000_000_000

KEY_FILE = "delegation-tokens.key"


def settings(**given):
    assignments = [f"{key.replace('__', '.').replace('_', '-')}={v}" for key, v in given.items()]
    return load_settings(environment={}, assignments=assignments)


def secret_file(path: Path, content: bytes = b"a secret of an operator\n", mode=0o600) -> Path:
    path.write_bytes(content)
    path.chmod(mode)
    return path


def test_the_secret_is_made_at_its_first_use_for_its_owner_only(tmp_path):
    key = DelegationTokenKey(settings(), tmp_path)
    path = tmp_path / KEY_FILE
    assert not path.exists()

    secret = key.read()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(secret) == 64
    assert key.read() == secret
    assert DelegationTokenKey(settings(), tmp_path).read() == secret
    assert [each.name for each in tmp_path.iterdir()] == [KEY_FILE]


def test_a_secret_of_the_settings_is_read_without_its_white_space(tmp_path):
    path = secret_file(tmp_path / "secret")

    key = DelegationTokenKey(settings(kafka__delegation_token_key=path), tmp_path)
    assert key.read() == b"a secret of an operator"


@pytest.mark.parametrize(
    ("content", "mode", "reason"),
    [
        (b"a secret of an operator", 0o640, "chmod 600"),
        (b"a secret of an operator", 0o604, "chmod 600"),
        (b"short", 0o600, "16 to"),
        (b"", 0o600, "16 to"),
        (b"x" * (1 << 17), 0o600, "16 to"),
        (None, 0o600, "No such file"),
    ],
)
def test_a_secret_that_cannot_be_used_ends_the_start(tmp_path, content, mode, reason):
    path = tmp_path / "secret"
    if content is not None:
        secret_file(path, content, mode)

    with pytest.raises(StartError, match=f"{SETTING}.*{reason}"):
        DelegationTokenKey(settings(kafka__delegation_token_key=path), tmp_path)


def test_a_secret_that_cannot_be_stored_is_an_error_of_the_request(tmp_path):
    (tmp_path / "file").touch()
    key = DelegationTokenKey(settings(), tmp_path / "file")

    with pytest.raises(StorageFailed, match=KEY_FILE):
        key.read()


def test_the_settings_bound_life_and_number(tmp_path):
    tokens = DelegationTokens({})
    given = settings(
        kafka__delegation_token_max_lifetime="2h",
        kafka__delegation_token_expiry="1h",
        kafka__delegation_tokens_limit="7",
    )
    enable_delegation_tokens(given, tokens, tmp_path)
    assert tokens.limits == DelegationTokenLimits(7_200_000, 3_600_000, 7)

    off = DelegationTokens({})
    enable_delegation_tokens(settings(kafka__delegation_tokens="false"), off, tmp_path)
    assert not off.is_enabled


class Expiry:
    """The job over a broker whose metadata is in memory."""

    def __init__(self):
        self.house = House()
        self.tokens = self.house.broker.delegation_tokens
        self.tokens.enable(lambda: b"the secret of the node", DelegationTokenLimits())
        self.now_ms = NOW_MS
        self.lines: list[dict[str, object]] = []
        self.problem: Exception | None = None
        audit = AuditLog(self.lines.append, lambda: self.now_ms)
        self.job = DelegationTokenExpiry(
            self.tokens, self.write, audit, lambda: self.now_ms, every_s=3_600
        )

    async def write(self, change):
        if self.problem is not None:
            raise change.abandon(self.problem)
        self.house.carry_out(change)

    async def create(self, lifetime_ms):
        token = self.tokens.make_token(
            ALICE, ALICE, (), lifetime_ms=lifetime_ms, now_ms=self.now_ms
        )
        await self.write(self.tokens.plan_create(token))
        return token


@on_loop
async def test_expired_tokens_are_removed_with_a_line_in_the_audit_log():
    expiry = Expiry()
    gone, kept = await expiry.create(1_000), await expiry.create(2_000)
    await expiry.job.remove_expired()
    assert len(expiry.tokens) == 2

    expiry.now_ms += 1_000
    await expiry.job.remove_expired()
    assert list(expiry.tokens) == [kept]
    (line,) = expiry.lines
    assert line["operation"] == "remove expired delegation token"
    assert line["resource"] == f"delegation token {gone.token_id}"
    assert line["owner"] == "User:alice"


@on_loop
async def test_many_expired_tokens_are_removed_in_several_changes():
    expiry = Expiry()
    for _ in range(30):
        await expiry.create(1_000)
    expiry.now_ms += 1_000
    expiry.tokens.find_removable = lambda now_ms, find=expiry.tokens.find_removable: find(now_ms, 7)
    await expiry.job.remove_expired()

    assert not len(expiry.tokens)


@on_loop
async def test_a_disk_that_refuses_ends_a_check_and_the_next_one_goes_on(caplog):
    expiry = Expiry()
    await expiry.create(1_000)
    expiry.now_ms += 1_000
    expiry.problem = DiskFull("full")
    await expiry.job.remove_expired()
    assert len(expiry.tokens) == 1
    assert [each.message for each in caplog.records] == ["delegation_tokens.expiry_failed"]

    expiry.problem = None
    await expiry.job.remove_expired()
    assert not len(expiry.tokens)


def test_tokens_outlive_the_node_and_expired_ones_do_not(tmp_path):
    given = {"kafka.delegation-token-check-every": "100ms"}
    with LiveNode(tmp_path, given, ("kafka-sasl",)) as live:
        tokens = live.node.storage.broker.delegation_tokens
        short, long = (
            tokens.make_token(ALICE, ALICE, (), lifetime_ms=ms, now_ms=live.node.now_ms())
            for ms in (50, 60_000)
        )
        for each in (short, long):
            live.write(tokens.plan_create(each))
        removed = asyncio.run_coroutine_threadsafe(_wait_for_removal(tokens), live._loop)
        assert removed.result(60) == short.token_id
        digest = tokens.hmac_of(long.token_id)
    with LiveNode(tmp_path, given, ("kafka-sasl",)) as again:
        tokens = again.node.storage.broker.delegation_tokens
        assert list(tokens) == [long]
        assert tokens.find_by_hmac(digest) == long
    stored = b"".join(each.read_bytes() for each in tmp_path.rglob("*") if each.is_file())
    assert long.token_id.encode() in stored
    assert digest not in stored
    assert base64.b64encode(digest) not in stored


async def _wait_for_removal(tokens: DelegationTokens) -> str:
    """Return the id of the next token that is removed, or of the one that is gone already."""
    gone = asyncio.get_running_loop().create_future()
    tokens.listeners.append(gone.set_result)
    return await gone
