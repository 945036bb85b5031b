"""AlterClientQuotas: what is set, what is refused, each for itself."""

from __future__ import annotations

from contextlib import suppress

import pytest

from tests.gateway.kafka.rig import Rig, settle, versions
from tests.gateway.loop import on_loop
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.errors import ConcurrentChange
from trilogue.broker.quotas.quotas import DEFAULT, QuotaEntity, QuotaKind, Quotas
from trilogue.wire.kafka.quotas.client_quotas import (
    AlterClientQuotasRequest,
    AlterQuotasEntry,
    AlterQuotasOp,
    EntityData,
)

PRODUCED = "producer_byte_rate"
Entity = dict[str, str | None]


def entry(entity: Entity, **rates: float | None) -> AlterQuotasEntry:
    """What to set; None removes."""
    return AlterQuotasEntry(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[
            AlterQuotasOp(key=key, value=rate or 0.0, remove=rate is None)
            for key, rate in rates.items()
        ],
    )


def alter(*entries: AlterQuotasEntry, validate_only: bool = False) -> AlterClientQuotasRequest:
    return AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)


def codes(response) -> list[tuple[Entity, int]]:
    return [
        ({part.entity_type: part.entity_name for part in each.entity}, each.error_code)
        for each in response.entries
    ]


@pytest.mark.parametrize("version", versions(49))
@on_loop
async def test_every_version_sets_and_removes(version):
    async with Rig() as rig:
        peer = rig.peer()

        response = await peer.request(
            alter(
                entry({"client-id": "c1"}, producer_byte_rate=9.0, request_percentage=0.5),
                entry({"user": "u", "client-id": None}, consumer_byte_rate=2.5e9),
                entry({"user": None}, controller_mutation_rate=0.5),
                entry({"ip": "0:0::1"}, connection_creation_rate=5.0),
                entry({"client-id": "never"}, producer_byte_rate=None, nope=None),
                entry({"client-id": "nothing"}),
            ),
            version,
        )

        assert codes(response) == [
            ({"client-id": "c1"}, 0),
            ({"client-id": None, "user": "u"}, 0),
            ({"user": None}, 0),
            ({"ip": "0:0::1"}, 0),
            ({"client-id": "never"}, 0),
            ({"client-id": "nothing"}, 0),
        ]
        assert [each.error_message for each in response.entries] == [None] * 6
        assert dict(rig.broker.quotas) == {
            QuotaEntity(None, "c1"): {QuotaKind.PRODUCED: 9.0, QuotaKind.WORK: 0.5},
            QuotaEntity("u", DEFAULT): {QuotaKind.FETCHED: 2.5e9},
            QuotaEntity(DEFAULT): {QuotaKind.CHANGES: 0.5},
            QuotaEntity(address="::1"): {QuotaKind.CONNECTIONS: 5.0},
        }
        await peer.request(alter(entry({"client-id": "c1"}, producer_byte_rate=None)), version)
        assert dict(rig.broker.quotas)[QuotaEntity(None, "c1")] == {QuotaKind.WORK: 0.5}
        assert dict(Quotas(rig.meta.state.settings)) == dict(rig.broker.quotas)


TWICE = AlterQuotasEntry(
    entity=[EntityData(entity_type="client-id", entity_name="c")],
    ops=[AlterQuotasOp(key=PRODUCED, value=value, remove=False) for value in (1.0, 2.0)],
)
REFUSED = {
    "nobody": entry({}, producer_byte_rate=1.0),
    "an unknown kind": entry({"nope": "x"}, producer_byte_rate=1.0),
    "an unknown bound": entry({"client-id": "c"}, nope=1.0),
    "one of them unknown": entry({"client-id": "c"}, producer_byte_rate=9.0, nope=1.0),
    "negative": entry({"client-id": "c"}, producer_byte_rate=-1.0),
    "nought": entry({"client-id": "c"}, producer_byte_rate=0.0),
    "half a byte": entry({"client-id": "c"}, producer_byte_rate=0.5),
    "too much": entry({"client-id": "c"}, producer_byte_rate=1e19),
    "infinite": entry({"client-id": "c"}, producer_byte_rate=float("inf")),
    "no number": entry({"client-id": "c"}, producer_byte_rate=float("nan")),
    "connections of a client": entry({"client-id": "c"}, connection_creation_rate=5.0),
    "half a connection": entry({"ip": "1.2.3.4"}, connection_creation_rate=5.5),
    "no address": entry({"ip": "no such host.x"}, connection_creation_rate=5.0),
    "bytes of an address": entry({"ip": "1.2.3.4"}, producer_byte_rate=5.0),
    "an address and a client": entry(
        {"ip": "1.2.3.4", "client-id": "x"}, connection_creation_rate=5.0
    ),
    "the empty name": entry({"client-id": ""}, producer_byte_rate=5.0),
    "a bound twice": TWICE,
    "a long name": entry({"client-id": "z" * 2_000}, producer_byte_rate=5.0),
}


@pytest.mark.parametrize("kind", REFUSED)
@on_loop
async def test_invalid_quota_is_refused_and_others_are_applied(kind):
    good = entry({"client-id": "good"}, producer_byte_rate=5.0)
    async with Rig() as rig:
        response = await rig.peer().request(alter(REFUSED[kind], good), 1)

        assert [each.error_code for each in response.entries] == [42, 0]
        assert response.entries[0].error_message
        assert dict(rig.broker.quotas) == {QuotaEntity(None, "good"): {QuotaKind.PRODUCED: 5.0}}


@on_loop
async def test_duplicate_quota_entity_is_refused():
    async with Rig() as rig:
        twice = [entry({"client-id": "c"}, producer_byte_rate=rate) for rate in (1.0, 2.0)]

        response = await rig.peer().request(alter(*twice), 1)

        assert codes(response) == [({"client-id": "c"}, 42)]
        assert not rig.broker.quotas.active


@on_loop
async def test_validation_alone_changes_nothing():
    async with Rig() as rig:
        requested = alter(
            entry({"client-id": "c"}, producer_byte_rate=1.0),
            entry({"client-id": "d"}, nope=1.0),
            validate_only=True,
        )

        assert [code for _, code in codes(await rig.peer().request(requested, 1))] == [0, 42]
        assert not rig.broker.quotas.active


@on_loop
async def test_quota_change_is_answered_when_durable_and_conflicts_are_reported():
    async with Rig() as rig:
        rig.hold_commits = True
        first, second = rig.peer(), rig.peer()
        for peer, rate in ((first, 1.0), (second, 2.0)):
            peer.send(alter(entry({"client-id": "c"}, producer_byte_rate=rate)), 1)
        await settle()

        assert (first.answered, second.answered) == (0, 0)
        assert not rig.broker.quotas.active
        rig.hold_commits = False
        for commit in rig.commits:
            with suppress(ConcurrentChange):  # the promise carries the error
                await rig.commit(commit)
        await first.wait()
        await second.wait()

        assert codes(first.answer()) == [({"client-id": "c"}, 0)]
        assert [code for _, code in codes(second.answer())] == [7]  # try again
        assert dict(rig.broker.quotas) == {QuotaEntity(None, "c"): {QuotaKind.PRODUCED: 1.0}}


@on_loop
async def test_alter_quotas_without_permission_is_denied():
    async with Rig() as rig:
        rig.rules.deny(Operation.ALTER_SETTINGS, ResourceKind.CLUSTER, "cluster")

        response = await rig.peer().request(
            alter(entry({"client-id": "c"}, producer_byte_rate=1.0)), 1
        )

        assert codes(response) == [({"client-id": "c"}, 31)]
        assert not rig.broker.quotas.active


@on_loop
async def test_a_request_changes_a_thousand_quotas_at_most():
    """They are decided and recorded in one go: five times as many kept the loop for 0.2 s."""
    async with Rig() as rig:
        entries = [
            entry({"client-id": f"c{number}"}, producer_byte_rate=9.0) for number in range(1_001)
        ]

        refused = await rig.peer().request(alter(*entries), 1)
        assert [each.error_code for each in refused.entries] == [42] * 1_001
        assert len(rig.gateway.quotas) == 0

        taken = await rig.peer().request(alter(*entries[1:]), 1)
        assert {each.error_code for each in taken.entries} == {0}
        assert len(rig.gateway.quotas) == 1_000
