"""Credentials of users: there are none, and none is accepted."""

from __future__ import annotations

import pytest

from tests.gateway.kafka.rig import Rig
from tests.gateway.loop import on_loop
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.wire.kafka.security.scram import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)


def about(*names: str) -> DescribeUserScramCredentialsRequest:
    return DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in names])


def kept(name: str, mechanism: int = 1) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=4096, salt=b"s", salted_password=b"p"
    )


def gone(name: str, mechanism: int = 1) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=name, mechanism=mechanism)


@pytest.mark.parametrize("requested", [DescribeUserScramCredentialsRequest(users=None), about()])
@on_loop
async def test_there_are_none(requested):
    async with Rig() as rig:
        answer = await rig.peer().request(requested, 0)

        assert (answer.error_code, answer.error_message, answer.results) == (0, None, [])


@on_loop
async def test_a_user_who_is_requested_is_not_there():
    """KIP-554: 91 RESOURCE_NOT_FOUND, 92 for a user named twice."""
    async with Rig() as rig:
        answer = await rig.peer().request(about("u", "twice", "twice"), 0)

        assert [(each.user, each.error_code) for each in answer.results] == [
            ("u", 91),
            ("twice", 92),
        ]
        assert all(each.error_message for each in answer.results)


@on_loop
async def test_no_password_is_taken():
    """54, after Kafka's own checks: 93 without a name, 33 for an unknown mechanism."""
    async with Rig() as rig:
        new = [kept("u"), kept("", 1), kept("odd", 9)]

        answer = await rig.peer().request(AlterUserScramCredentialsRequest(upsertions=new), 0)

        assert [(each.user, each.error_code) for each in answer.results] == [
            ("u", 54), ("", 93), ("odd", 33),
        ]  # fmt: skip
        assert all(each.error_message for each in answer.results)


@on_loop
async def test_what_is_not_there_cannot_be_forgotten_and_is_told_once_for_a_user():
    async with Rig() as rig:
        old = [gone("u"), gone("u", 2), gone(""), gone("odd", 9)]

        answer = await rig.peer().request(AlterUserScramCredentialsRequest(deletions=old), 0)

        assert [(each.user, each.error_code) for each in answer.results] == [
            ("u", 91), ("", 93), ("odd", 33),
        ]  # fmt: skip


@on_loop
async def test_who_may_not_gets_an_error():
    async with Rig() as rig:
        rig.rules.deny(Operation.ALTER, ResourceKind.CLUSTER, "cluster")
        rig.rules.deny(Operation.DESCRIBE, ResourceKind.CLUSTER, "cluster")
        peer = rig.peer()

        altered = await peer.request(AlterUserScramCredentialsRequest(upsertions=[kept("u")]), 0)

        assert [each.error_code for each in altered.results] == [31]
        assert (await peer.request(about("u"), 0)).error_code == 31
