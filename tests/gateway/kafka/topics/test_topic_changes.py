"""KIP-599: created and deleted partitions count against the client's mutation quota."""

from __future__ import annotations

import pytest

from tests.gateway.kafka.rig import Rig
from tests.gateway.kafka.topics.test_create_partitions import grow, to
from tests.gateway.kafka.topics.test_topics import codes, create, delete, topic
from tests.gateway.loop import on_loop
from tests.waiting import pass_time
from trilogue.broker.quotas.quotas import QuotaEntity, QuotaKind

TOO_MUCH = 89
RATE = 2.0  # partitions per second, and the burst


async def bounded(rig: Rig) -> None:
    """The client is limited, and owes two seconds."""
    rig.topic("there", partitions=3)
    entity = QuotaEntity(None, "rig"), {QuotaKind.CHANGES: RATE}
    await rig.commit(rig.broker.quotas.plan_alter([entity]))
    made = (await rig.peer().request(create(topic("first", 6)), 7)).topics
    assert codes(made) == [("first", 0)], "what was left allowed it"


STRICT = {
    "create": (lambda: create(topic("more", 1), topic("again", 1)), 7, "topics"),
    "delete": (lambda: delete(6, "there"), 6, "responses"),
    "grow": (lambda: grow(to("there", 4)), 3, "results"),
}
PATIENT = {
    "create": (lambda: create(topic("more", 1)), 5, "topics"),
    "delete": (lambda: delete(4, "there"), 4, "responses"),
    "grow": (lambda: grow(to("there", 4)), 2, "results"),
}


@pytest.mark.parametrize("kind", STRICT)
@on_loop
async def test_newer_versions_are_notified_that_it_is_too_much_and_nothing_changes(kind):
    requested, version, where = STRICT[kind]
    async with Rig() as rig:
        await bounded(rig)
        before = {each.name: len(each.partitions) for each in rig.broker.cluster}

        answer = await rig.peer().request(requested(), version)

        assert {each.error_code for each in getattr(answer, where)} == {TOO_MUCH}
        assert 0 < answer.throttle_time_ms <= 2_000
        assert before == {each.name: len(each.partitions) for each in rig.broker.cluster}
        await pass_time(2.1)
        answer = await rig.peer().request(requested(), version)
        assert getattr(answer, where)[0].error_code == 0, "the debt is over"


@pytest.mark.parametrize("kind", PATIENT)
@on_loop
async def test_older_versions_are_served_and_made_to_wait(kind):
    requested, version, where = PATIENT[kind]
    async with Rig() as rig:
        await bounded(rig)

        answer = await rig.peer().request(requested(), version)

        assert [each.error_code for each in getattr(answer, where)] == [0]
        assert answer.throttle_time_ms > 2_000


@on_loop
async def test_validated_or_refused_changes_use_no_quota():
    async with Rig() as rig:
        await bounded(rig)
        await pass_time(2.0)
        peer = rig.peer()

        validated = await peer.request(create(topic("more", 50), validate_only=True), 7)
        refused = await peer.request(create(topic("there", 50)), 7)
        made = await peer.request(create(topic("more", 1)), 7)

        assert codes(validated.topics) == [("more", 0)]
        assert codes(refused.topics) == [("there", 36)]
        assert codes(made.topics) == [("more", 0)]
