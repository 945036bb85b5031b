"""Damaged logins of Kafka's and Pulsar's clients: none is another user, none breaks the server.

    Kafka    PLAIN, both messages of SCRAM, OAUTHBEARER; in SaslAuthenticate, bare after
             SaslHandshake v0, and as the renewal of a session; whole frames
    Pulsar   CONNECT by token, password and proxy; AUTH_RESPONSE; whole frames

A damaged login succeeds only as the user whose right credentials are still in it. `make fuzz` runs
many more rounds (TRILOGUE_FUZZ_ROUNDS), with other seeds each time.
"""

from __future__ import annotations

import base64
import binascii
import itertools
import logging
import os
import struct
from collections.abc import Callable
from random import Random
from typing import Any

import jwt
import pytest

from tests.broker.access.test_users import PASSWORD, Client
from tests.gateway.kafka.rig import Peer, Rig, settle
from tests.gateway.loop import InlineExecutor, on_loop
from tests.gateway.pulsar.auth.test_login import KEYS, REFRESHING, SECRET
from tests.gateway.pulsar.auth.test_login import Secured as PulsarRig
from tests.gateway.pulsar.rig import frame_of
from tests.waiting import pass_time, wait_on_loop
from trilogue.broker.access.scram import HASHES, make_verifier
from trilogue.broker.access.tokens import TokenRules, TokenValidator
from trilogue.broker.access.users import User
from trilogue.gateway import authentication
from trilogue.gateway.authentication import Authenticator
from trilogue.gateway.failed_logins import FailedLogins
from trilogue.gateway.kafka.context import KafkaSettings
from trilogue.gateway.kafka.security.sasl_login import MECHANISMS, OAUTHBEARER, PLAIN
from trilogue.gateway.listener_security import ListenerSecurity
from trilogue.wire.kafka.metadata.metadata import MetadataRequest
from trilogue.wire.kafka.security.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

ROUNDS = int(os.environ.get("TRILOGUE_FUZZ_ROUNDS", "60"))
SEED = os.environ.get("TRILOGUE_FUZZ_SEED", "1")
ALICE, BOB = "alice", "bob"
SASL = ListenerSecurity("kafka-sasl", lambda: ("broker.example", 9094), sasl=True)
PIECES = (
    b",", b"=", b"\0", b"\x01", b"n,,", b"y,,", b"p=tls,,", b"a=bob", b"n=bob", b"r=", b"m=x",
    b"tokenauth=true", b"\xff\xfe", b"=2C", b"=3D", b"c=biws", b"auth=Bearer ", b".", b"e30",
    b"none", b"\xf0\x9f\x92\xa3", b"%s" * 9, b"9" * 400, b"\x7f\xff\xff\xff",
)  # fmt: skip


def mutate(random: Random, data: bytes) -> bytes:
    """Return the bytes with one to four damages."""
    out = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 4))):
        starts, end = random.randrange(4), len(out)  # where the structure of most tokens is
        at = min(end, random.choice((starts, end, random.randrange(end + 1))))
        match random.randrange(7):
            case 0:
                out[at:at] = random.choice(PIECES)
            case 1:
                out[at : at + random.randrange(1, 9)] = random.choice(PIECES)
            case 2:
                del out[at : at + random.randrange(1, 9)]
            case 3:
                del out[at:]
            case 4:
                out[at:at] = out[: random.randrange(len(out) + 1)]
            case 5:
                out[at:at] = random.randbytes(random.randrange(1, 5))
            case _ if at < len(out):
                out[at] ^= 1 << random.randrange(8)
    return bytes(out)


def rounds(name: str) -> list[Random]:
    """Return a source of random numbers for each round, which a failure names."""
    return [Random(f"{SEED} {name} {number}") for number in range(ROUNDS)]


def prepare(authenticator: Authenticator, monkeypatch: pytest.MonkeyPatch, rig: Rig) -> None:
    """Make checks of passwords quick, and forget failures, which would hide the rest."""

    def check(password: bytes, hashed: Any, verifiers: Any, shape: Any) -> bool:
        del hashed, shape
        return bool(verifiers) and password == PASSWORD

    monkeypatch.setattr(authentication, "check_password", check)
    times = itertools.count(1_000, 1_000)
    authenticator._failures = FailedLogins(lambda: float(next(times)))
    authenticator._pool = InlineExecutor()
    rules = TokenRules()
    authenticator.tokens = TokenValidator(lambda: KEYS, rules, now_ms=lambda: rig.now_ms)


async def add_users(rig: Rig) -> None:
    verifiers = {mechanism: make_verifier(mechanism, PASSWORD) for mechanism in HASHES}
    for name in (ALICE, BOB):
        await rig.commit(rig.broker.users.plan_put(User(name, 1, verifiers)))


@pytest.fixture(autouse=True)
def _no_unexpected_errors(caplog: pytest.LogCaptureFixture):
    """An exception that no code expected is logged, and fails the test."""
    yield
    found = [each for each in caplog.get_records("call") if each.levelno >= logging.ERROR]
    assert not found, [(each.message, each.exc_text) for each in found]


# ---- Kafka


class KafkaRig(Rig):
    def __init__(self) -> None:
        super().__init__(settings=KafkaSettings(sasl_mechanisms=MECHANISMS))

    def bearer(self, user: str) -> bytes:
        claims = {"sub": user, "exp": self.now_ms // 1_000 + 600}
        token = jwt.encode(claims, SECRET, algorithm="HS256")
        return f"n,,\x01auth=Bearer {token}\x01\x01".encode()

    async def log_in(self, peer: Peer) -> None:
        """Log in as alice, as it should be."""
        await peer.request(SaslHandshakeRequest(mechanism=PLAIN), 1)
        token = b"\0" + ALICE.encode() + b"\0" + PASSWORD
        await peer.request(SaslAuthenticateRequest(auth_bytes=token), 1)


class Conversation:
    """One login of a client over a connection, in SaslAuthenticate or bare."""

    def __init__(self, peer: Peer, *, bare: bool) -> None:
        self.peer = peer
        self.bare = bare

    async def begin(self, mechanism: str) -> None:
        await self.peer.request(SaslHandshakeRequest(mechanism=mechanism), 0 if self.bare else 1)

    async def send(self, token: bytes) -> bytes | None:
        """Return the server's token; None: it has refused, or closed."""
        peer = self.peer
        if not self.bare:
            peer.send(SaslAuthenticateRequest(auth_bytes=token), 2)
            await peer.wait()
            if not peer.answered:
                return None
            answer = peer.answer()
            return None if answer.error_code else bytes(answer.auth_bytes)
        before = len(peer.transport.frames())
        peer.transport.receive(struct.pack(">i", len(token)) + token)
        await wait_on_loop(lambda: len(peer.transport.frames()) > before or peer.is_cut, "a token")
        frames = peer.transport.frames()
        return bytes(frames[before]) if len(frames) > before else None


def same_plain(sent: bytes, _right: bytes) -> bool:
    whom, *rest = sent.split(b"\0")
    return whom in {b"", ALICE.encode()} and rest == [ALICE.encode(), PASSWORD]


def same_bearer(sent: bytes, right: bytes) -> bool:
    """What is signed is there; the last character of a signature has bits without a meaning."""
    signed = right.partition(b"Bearer ")[2].rpartition(b".")[0]
    whom = sent.split(b"\x01")[0].split(b",")[1:2]
    return signed in sent and whom in ([b""], [b"a="], [b"a=alice"], [b"alice"])


def same_final(sent: bytes, right: bytes) -> bool:
    head, _, proof = sent.rpartition(b",p=")
    expected_head, _, expected = right.rpartition(b",p=")
    try:
        return head == expected_head and base64.b64decode(proof) == base64.b64decode(expected)
    except binascii.Error:
        return False


def equal(sent: bytes, right: bytes) -> bool:
    return sent == right


STAGES: dict[str, tuple[str, Callable[[bytes, bytes], bool]]] = {
    "PLAIN": (PLAIN, same_plain),
    "first of SCRAM-SHA-256": ("SCRAM-SHA-256", equal),
    "first of SCRAM-SHA-512": ("SCRAM-SHA-512", equal),
    "final of SCRAM-SHA-256": ("SCRAM-SHA-256", same_final),
    "final of SCRAM-SHA-512": ("SCRAM-SHA-512", same_final),
    "OAUTHBEARER": (OAUTHBEARER, same_bearer),
}


async def talk(
    rig: KafkaRig, talker: Conversation, stage: str, random: Random, user: str = ALICE
) -> bool:
    """Log in with one damaged token; return whether a right one would have been the same.

    Another user's token is not damaged, now and then: it is right, and of the wrong user.
    """
    mechanism, is_same = STAGES[stage]
    damage = mutate if user == ALICE or random.random() < 0.5 else lambda _random, token: token
    await talker.begin(mechanism)
    if not stage.startswith(("first", "final")):
        name = user.encode()
        plain = b"\0".join((random.choice((b"", name)), name, PASSWORD))
        right = rig.bearer(user) if stage == OAUTHBEARER else plain
        sent = damage(random, right)
        answer = await talker.send(sent)
        if answer:  # a bearer's refusal, which the client acknowledges
            await talker.send(mutate(random, b"\x01"))
        return is_same(sent, right)
    client = Client(mechanism, user)
    first = client.first()
    sent = damage(random, first) if stage.startswith("first") else first
    answer = await talker.send(sent)
    if answer is None:
        return False
    if stage.startswith("first"):
        try:
            await talker.send(client.final(answer))
        except (ValueError, KeyError):  # the client cannot read the server's answer
            return False
        return is_same(sent, first)
    right = client.final(answer)
    sent = damage(random, right)
    await talker.send(sent)
    return is_same(sent, right)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("framing", ["requests", "bare"])
def test_no_damaged_token_logs_in(stage, framing, monkeypatch):
    @on_loop
    async def scenario():
        async with KafkaRig() as rig:
            prepare(rig.gateway.authenticator, monkeypatch, rig)
            await add_users(rig)
            for random in rounds(f"{stage} {framing}"):
                peer = rig.peer(listener=SASL)
                is_same = await talk(rig, Conversation(peer, bare=framing == "bare"), stage, random)
                await pass_time(0.2)
                principal = None if peer.is_cut else peer.session.login.principal
                assert (principal is not None) <= is_same, random
                if principal is None and not peer.is_cut:
                    before = len(peer.transport.frames())
                    peer.send(MetadataRequest(topics=[]), 9)
                    await settle()
                    await pass_time(0.2)
                    assert peer.is_cut
                    assert len(peer.transport.frames()) - before <= (framing == "bare")
                if not peer.is_cut:
                    peer.transport.close()

    scenario()


@pytest.mark.parametrize("stage", STAGES)
def test_no_damaged_renewal_changes_the_principal(stage, monkeypatch):
    @on_loop
    async def scenario():
        async with KafkaRig() as rig:
            prepare(rig.gateway.authenticator, monkeypatch, rig)
            await add_users(rig)
            for random in rounds(f"{stage} renewal"):
                peer = rig.peer(listener=SASL)
                await rig.log_in(peer)
                user = random.choice((ALICE, BOB))
                await talk(rig, Conversation(peer, bare=False), stage, random, user)
                await pass_time(0.2)
                if not peer.is_cut:
                    assert peer.session.principal.name == ALICE
                    assert peer.session.login.principal.name == ALICE, random
                    peer.transport.close()

    scenario()


def test_damaged_frames_of_a_login_are_answered_or_close(monkeypatch):
    @on_loop
    async def scenario():
        async with KafkaRig() as rig:
            prepare(rig.gateway.authenticator, monkeypatch, rig)
            await add_users(rig)
            for random in rounds("frames"):
                peer = rig.peer(listener=SASL)
                version = random.randrange(2)
                requests = [
                    (SaslHandshakeRequest(mechanism=random.choice(MECHANISMS)), version),
                    (SaslAuthenticateRequest(auth_bytes=b"\0alice\0" + PASSWORD), 2),
                    (SaslAuthenticateRequest(auth_bytes=Client().first()), 1),
                ]
                receive = peer.transport.receive
                for request, request_version in requests:
                    frames: list[bytes] = []
                    peer.transport.receive = lambda data, _piece=None, to=frames: to.append(data)
                    peer.send(request, request_version)
                    body = mutate(random, frames[0][4:]) if random.random() < 0.7 else frames[0][4:]
                    if peer.is_cut:
                        break
                    receive(struct.pack(">i", len(body)) + body)
                    await settle()
                    await pass_time(0.2)
                if not peer.is_cut:
                    login = peer.session.login
                    assert login.principal is None or login.principal.name == ALICE, random
                    peer.transport.close()

    scenario()


# ---- Pulsar


def right_connects(rig: PulsarRig) -> list[dict[str, Any]]:
    """CONNECTs as clients send them, all of alice."""
    proxied = {"original_principal": ALICE, "proxy_version": "4.0"}
    return [
        {**rig.by_token(ALICE), **REFRESHING},
        {"auth_method_name": "basic", "auth_data": b"alice:" + PASSWORD},
        {**rig.by_token("proxy"), **proxied},
        {
            **rig.by_token("proxy"),
            **proxied,
            "original_auth_method": "token",
            "original_auth_data": rig.token(ALICE).decode(),
        },
    ]


def reframe(random: Random, whole: bytes) -> bytes:
    """Damage the command inside of a frame, or, now and then, the frame."""
    if random.random() < 0.2:
        return mutate(random, whole)
    command = mutate(random, whole[8:])
    return struct.pack(">II", len(command) + 4, len(command)) + command


def test_damaged_connects_are_answered_or_close(monkeypatch):
    @on_loop
    async def scenario():
        async with PulsarRig() as rig:
            prepare(rig.gateway.authenticator, monkeypatch, rig)
            await add_users(rig)
            for random in rounds("connect"):
                for number, fields in enumerate(right_connects(rig)):
                    whole = frame_of("connect", client_version="f", protocol_version=21, **fields)
                    peer = rig.peer()
                    peer.give(reframe(random, whole))
                    await settle()
                    if peer.connection.connected and number < 2:
                        assert peer.connection.principal.name == ALICE, random
                    if not peer.is_cut:
                        peer.transport.close()

    scenario()


def test_damaged_credentials_are_refused_and_answered(monkeypatch):
    """The command is whole: the answer is an error, then the connection ends."""

    @on_loop
    async def scenario():
        async with PulsarRig() as rig:
            prepare(rig.gateway.authenticator, monkeypatch, rig)
            await add_users(rig)
            for random in rounds("credentials"):
                for fields in right_connects(rig)[:2]:
                    right = fields["auth_data"]
                    sent = mutate(random, right)
                    peer = rig.peer()
                    given = {**fields, "auth_data": sent}
                    peer.send_command("connect", client_version="f", protocol_version=21, **given)
                    await peer.wait()
                    found = peer.next()
                    if found.field == "connected":
                        is_token = fields["auth_method_name"] == "token"
                        assert (right.rpartition(b".")[0] in sent) if is_token else sent == right
                        assert peer.connection.principal.name == ALICE
                        peer.transport.close()
                    else:
                        assert found.field == "error"
                        assert peer.is_cut

    scenario()


def test_damaged_answers_to_a_challenge_do_not_change_the_principal(monkeypatch):
    @on_loop
    async def scenario():
        async with PulsarRig() as rig:
            prepare(rig.gateway.authenticator, monkeypatch, rig)
            for random in rounds("challenge")[: max(20, ROUNDS // 5)]:
                peer = await rig.connected(**rig.by_token(ALICE, 60), **REFRESHING)
                await rig.pass_seconds(52)
                await peer.answer("authChallenge")
                user = random.choice((ALICE, BOB))
                whole = frame_of("authResponse", response=rig.by_token(user, 60))
                is_right = user == BOB and random.random() < 0.5  # right, and of the wrong user
                peer.give(whole if is_right else reframe(random, whole))
                await settle()
                if not peer.is_cut:
                    assert peer.connection.principal.name == ALICE, random
                    assert peer.connection.expiry.login.client.principal.name == ALICE, random
                    peer.transport.close()

    scenario()
