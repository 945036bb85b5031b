"""SCRAM credentials of users (KIP-554): created, described, deleted; they serve every login."""

from __future__ import annotations

import hashlib

import pytest

from tests.gateway.kafka.rig import Rig
from tests.gateway.loop import on_loop
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.access.passwords import check_password
from trilogue.wire.kafka.security.scram_credentials import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)

PASSWORD, SALT = b"wonderland", b"salt"
HASHES = {1: "sha256", 2: "sha512"}


def about(*names: str) -> DescribeUserScramCredentialsRequest:
    return DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in names])


def kept(name: str, mechanism: int = 1, iterations: int = 4096) -> ScramCredentialUpsertion:
    salted = hashlib.pbkdf2_hmac(HASHES.get(mechanism, "sha256"), PASSWORD, SALT, iterations)
    return ScramCredentialUpsertion(
        name=name,
        mechanism=mechanism,
        iterations=iterations,
        salt=SALT,
        salted_password=salted,
    )


def gone(name: str, mechanism: int = 1) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=name, mechanism=mechanism)


async def alter(rig: Rig, *, new=(), old=()) -> list[tuple[str, int]]:
    request = AlterUserScramCredentialsRequest(upsertions=list(new), deletions=list(old))
    answer = await rig.peer().request(request, 0)
    return [(each.user, each.error_code) for each in answer.results]


async def describe(rig: Rig, request=None) -> list[tuple[str, int, list[tuple[int, int]]]]:
    request = request or DescribeUserScramCredentialsRequest(users=None)
    answer = await rig.peer().request(request, 0)
    return [
        (
            each.user,
            each.error_code,
            [(info.mechanism, info.iterations) for info in each.credential_infos],
        )
        for each in answer.results
    ]


@pytest.mark.parametrize("requested", [DescribeUserScramCredentialsRequest(users=None), about()])
@on_loop
async def test_at_first_there_are_none(requested):
    async with Rig() as rig:
        answer = await rig.peer().request(requested, 0)

        assert (answer.error_code, answer.error_message, answer.results) == (0, None, [])


@on_loop
async def test_an_empty_list_describes_all_users():
    """KIP-554; sarama, and kafkactl with it, has no null list."""
    async with Rig() as rig:
        await alter(rig, new=[kept("u"), kept("v", 2)])

        assert await describe(rig, about()) == [("u", 0, [(1, 4096)]), ("v", 0, [(2, 4096)])]


@on_loop
async def test_a_user_of_kafkas_tools_has_a_password_that_other_logins_take():
    async with Rig() as rig:
        ended = []
        rig.broker.users.listeners.append(ended.append)
        assert await alter(rig, new=[kept("u"), kept("u", 2, 8192)]) == [("u", 0)]

        assert await describe(rig) == [("u", 0, [(1, 4096), (2, 8192)])]
        user = rig.broker.users.find("u")
        assert check_password(PASSWORD, user.password, user.scram)
        assert not check_password(b"wrong", user.password, user.scram)
        assert ended == ["u"]


@on_loop
async def test_mechanisms_are_deleted_one_by_one_and_the_user_with_the_last():
    async with Rig() as rig:
        await alter(rig, new=[kept("u"), kept("u", 2)])

        assert await alter(rig, old=[gone("u")]) == [("u", 0)]
        assert await describe(rig) == [("u", 0, [(2, 4096)])]
        assert await alter(rig, old=[gone("u", 2)]) == [("u", 0)]
        assert rig.broker.users.find("u") is None
        assert await alter(rig, old=[gone("u")]) == [("u", 91)]


@on_loop
async def test_describe_of_unknown_and_duplicate_scram_users_returns_errors():
    """KIP-554: 91 RESOURCE_NOT_FOUND, 92 for a user named twice."""
    async with Rig() as rig:
        found = await describe(rig, about("u", "twice", "twice"))

        assert [(name, code) for name, code, _ in found] == [("u", 91), ("twice", 92)]


@on_loop
async def test_invalid_scram_credential_is_refused():
    """93 without a name or with weak work, 33 for an unknown mechanism, 92 named twice."""
    async with Rig() as rig:
        short = kept("short")
        short.salted_password = b"p"
        new = [kept(""), kept("odd", 9), kept("weak", 1, 4095), kept("slow", 1, 16_385), short]
        new += [kept("twice"), kept("twice")]

        assert await alter(rig, new=new) == [
            ("", 93), ("odd", 33), ("weak", 93), ("slow", 93), ("short", 93), ("twice", 92),
        ]  # fmt: skip
        assert not len(rig.broker.users)


@on_loop
async def test_scram_requests_without_permission_are_denied():
    async with Rig() as rig:
        rig.rules.deny(Operation.ALTER, ResourceKind.CLUSTER, "cluster")
        rig.rules.deny(Operation.DESCRIBE, ResourceKind.CLUSTER, "cluster")

        assert await alter(rig, new=[kept("u")]) == [("u", 31)]
        assert (await rig.peer().request(about("u"), 0)).error_code == 31
