"""Damaged and invented authInfo: none admits a client, and none raises anything unexpected."""

from __future__ import annotations

from random import Random

import pytest
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gateway.loop import on_loop
from tests.gateway.tubemq.auth.auth_rig import (
    NOW_MS,
    AuthenticationRig,
    PeerAt,
    at_broker,
    blanks,
)
from tests.gateway.tubemq.rig import Rig, frame_of, send_fields, settle
from trilogue.broker.errors import AuthenticationFailed
from trilogue.gateway.tubemq.auth.authentication import (
    ALL_ROLES,
    AdmittedClients,
    AuthenticationSettings,
    Role,
)
from trilogue.gateway.tubemq.auth.signatures import signature
from trilogue.wire.tubemq.broker_pb2 import AuthorizedInfo
from trilogue.wire.tubemq.errors import UndecodableRequest
from trilogue.wire.tubemq.frame import parse_message
from trilogue.wire.tubemq.master_pb2 import AuthenticateInfo, MasterCertificateInfo

FLIPS = 40  # of each byte: more than half of its values
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
TIMES = st.one_of(INT64, st.integers(NOW_MS - 30_000, NOW_MS + 30_000))
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
NAMES = st.one_of(st.sampled_from(["alice", "bob", "alice ", "ALICE", ""]), st.text(max_size=300))
WORDS = st.one_of(st.text(max_size=1_100), st.sampled_from([".", "...", " ", "   ", "a 1 2 s"]))


def proof_of(certificate: Message) -> tuple[object, ...]:
    """Return what decides: without parameters that nothing reads."""
    if isinstance(certificate, MasterCertificateInfo):
        info = certificate.authInfo
        signed = info.userName, info.timestamp, info.nonce, info.signature
        return signed if certificate.HasField("authInfo") else (certificate.authorizedToken,)
    assert isinstance(certificate, AuthorizedInfo)
    return (certificate.authAuthorizedToken,)


@pytest.mark.parametrize("kind", ["signature", "token at master", "token at broker", "text"])
def test_no_damaged_proof_admits(kind):
    gateway = AuthenticationRig()
    token = gateway.token()
    proof: Message = {
        "signature": gateway.signed(),
        "token at master": MasterCertificateInfo(authorizedToken=token),
        "token at broker": at_broker(token),
        "text": blanks(gateway),
    }[kind]
    random, whole = Random(kind), proof.SerializeToString()
    tried = 0
    for at in range(len(whole)):
        for _ in range(FLIPS):
            damaged = bytearray(whole)
            damaged[at] ^= random.randrange(1, 256)
            try:
                parsed = parse_message(type(proof), bytes(damaged))
            except UndecodableRequest:
                continue
            if proof_of(parsed) == proof_of(proof):
                continue
            tried += 1
            with pytest.raises(AuthenticationFailed):
                gateway.request(parsed, role=Role.CONSUMER, peer=PeerAt(f"{at}"))
    assert tried > len(whole)
    gateway.request(proof, role=Role.CONSUMER, peer=AdmittedClients())


@given(user=NAMES, time_ms=TIMES, nonce=INT32, signed=WORDS, other=WORDS)
@settings(max_examples=300, deadline=None)
def test_no_invented_signature_admits(user, time_ms, nonce, signed, other):
    gateway = AuthenticationRig()
    info = AuthenticateInfo(
        userName=user, timestamp=time_ms, nonce=nonce, othParams=other, signature=signed
    )
    for proof in (
        MasterCertificateInfo(authInfo=info),
        MasterCertificateInfo(authInfo=info, authorizedToken=other),
        at_broker(f"{user} {time_ms} {nonce} {signed}"),
    ):
        with pytest.raises(AuthenticationFailed):
            gateway.request(proof)
    assert not gateway.peer.admitted


@given(token=WORDS, visit=INT64)
@settings(max_examples=300, deadline=None)
def test_no_invented_token_admits(token, visit):
    gateway = AuthenticationRig()
    for proof in (MasterCertificateInfo(authorizedToken=token), at_broker(token, visit)):
        with pytest.raises(AuthenticationFailed):
            gateway.request(proof)
    assert not gateway.peer.admitted


@on_loop
async def test_no_damaged_send_is_stored_or_breaks_the_gateway():
    """Sends are parsed by a codec of their own."""
    demands = AuthenticationSettings(ALL_ROLES, checks_visit=True)
    async with Rig(users={"alice": b"wonder"}, demands=demands) as rig:
        topic = rig.topic("demo")
        fields = send_fields("demo", 0, b"x")
        stamp = {"userName": "alice", "timestamp": rig.now_ms, "nonce": 1, "othParams": ""}
        signed = {**stamp, "signature": signature("alice", b"wonder", rig.now_ms, 1)}
        producer = {"clientId": fields["clientId"], "brokerCheckSum": -1, "hostName": "h"}
        registered = await rig.master().request(
            "producerRegisterP2M", **producer, topicList=["demo"], authInfo={"authInfo": signed}
        )
        tokens = registered.authorizedInfo
        proof = AuthorizedInfo(
            visitAuthorizedToken=tokens.visitAuthorizedToken,
            authAuthorizedToken=tokens.authAuthorizedToken,
        )
        frame, inner = frame_of(1, "sendMessageP2B", **fields, authInfo=proof), proof.ByteSize()
        start = frame.index(proof.SerializeToString())
        random, log = Random(7), topic.partitions[0].log
        for at in range(start, start + inner):
            for _ in range(4):
                damaged = bytearray(frame)
                damaged[at] ^= random.randrange(1, 256)
                rig.broker_peer().give(bytes(damaged))
                await settle()
                assert log.end_offset == 0

        assert (await rig.broker_peer().send("demo", authInfo=proof)).success
