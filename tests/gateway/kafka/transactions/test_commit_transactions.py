"""Several transactions in one decision: all or none, once, also after a restart."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gateway.kafka.rig import Peer, Rig
from tests.gateway.kafka.transactions.test_transactions import (
    FENCED,
    INVALID_STATE,
    TOPIC,
    WRONG_MAPPING,
    Writer,
    read,
)
from tests.gateway.loop import on_loop
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.facts import FactKind
from trilogue.broker.transactions.batch_commits import BatchCommits
from trilogue.broker.transactions.transaction import TransactionLimits
from trilogue.wire.kafka.metadata.api_versions import ApiVersionsRequest
from trilogue.wire.kafka.transactions.commit_transactions import (
    CommitTransactionsRequest,
    CommitTransactionsTransaction,
    DescribeCommittedBatchRequest,
)

APPLICATION, OWN_KEYS = "query-1", {20_001, 20_002}
INVALID_REQUEST, NOT_AUTHORIZED = 42, 53


async def open_writers(rig: Rig, *names: str) -> list[Writer]:
    """Return producers with a message each in a transaction of their own."""
    writers = []
    for name in names:
        writer = Writer(rig.peer(), name=name)
        assert await writer.init() == 0
        assert await writer.add(0) == [0]
        assert await writer.write(f"of-{name}") == 0
        writers.append(writer)
    return writers


async def commit(
    peer: Peer, batch_id: int, *writers: Writer, application: str = APPLICATION
) -> Any:
    return await peer.request(
        CommitTransactionsRequest(
            application_id=application,
            batch_id=batch_id,
            transactions=[
                CommitTransactionsTransaction(
                    transactional_id=each.name, producer_id=each.id, producer_epoch=each.epoch
                )
                for each in writers
            ],
        ),
        0,
    )


async def last_batch(peer: Peer, application: str = APPLICATION) -> int:
    request = DescribeCommittedBatchRequest(application_id=application)
    return (await peer.request(request, 0)).batch_id


@on_loop
async def test_all_commit_at_once_and_the_batch_is_known_afterwards():
    async with Rig() as rig:
        rig.topic(TOPIC)
        writers = await open_writers(rig, "a", "b")
        peer = rig.peer()
        assert await last_batch(peer) == -1

        answer = await commit(peer, 3, *writers)

        assert (answer.error_code, answer.batch_id, answer.is_repeated) == (0, 3, False)
        text, stable_end, aborted = await read(rig)
        assert "of-a" in text
        assert "of-b" in text
        assert (stable_end, aborted) == (4, 0)  # two messages, two markers
        assert await last_batch(peer) == 3
        assert await writers[0].add(0) == [0]  # the next transaction of the same epoch


@on_loop
async def test_a_batch_that_was_committed_is_not_committed_again():
    async with Rig() as rig:
        rig.topic(TOPIC)
        (first,) = await open_writers(rig, "a")
        peer = rig.peer()
        await commit(peer, 3, first)
        (late,) = await open_writers(rig, "b")

        for batch_id in (3, 2):
            answer = await commit(peer, batch_id, late)
            assert (answer.error_code, answer.batch_id, answer.is_repeated) == (0, 3, True)

        assert await late.end(commit=False) == 0  # it is still open
        assert (await commit(peer, 4)).batch_id == 4  # an empty one


@on_loop
async def test_nothing_commits_where_one_cannot():
    async with Rig() as rig:
        rig.topic(TOPIC)
        good, fenced, ended = await open_writers(rig, "good", "fenced", "ended")
        unknown = Writer(rig.peer(), name="unknown")
        other = Writer(rig.peer(), name="fenced")
        await other.init()
        await ended.end()
        peer = rig.peer()

        for bad, code in ((fenced, FENCED), (ended, INVALID_STATE), (unknown, WRONG_MAPPING)):
            answer = await commit(peer, 1, good, bad)
            assert answer.error_code == code
            assert bad.name in answer.error_message or code != INVALID_STATE
        assert (await commit(peer, 1, good, good)).error_code == INVALID_REQUEST
        assert (await commit(peer, -1, good)).error_code == INVALID_REQUEST
        assert (await commit(peer, 1, good, application="")).error_code == INVALID_REQUEST

        assert await last_batch(peer) == -1
        assert await good.end() == 0  # its own producer still may


@on_loop
async def test_a_restart_carries_out_what_was_decided():
    async with Rig() as rig:
        rig.topic(TOPIC)
        writers = await open_writers(rig, "a", "b")
        rows = [row.value for row in rig.broker.transactions.table.snapshot()]
        written: list[tuple[int, bytes]] = []
        table = rig.broker.transactions.table
        add_fact = table.add_fact
        table.add_fact = lambda kind, payload: (  # type: ignore[method-assign]
            written.append((kind, payload)), add_fact(kind, payload)
        )[1]  # fmt: skip
        await commit(rig.peer(), 7, *writers)
        (decision,) = [payload for kind, payload in written if kind == FactKind.BATCH_COMMITTED]

        fresh = rig.make_coordinator()
        batches = BatchCommits(fresh, lambda: rig.now_ms)
        for value in rows:
            fresh.table.load(value)
        batches.replay(decision)
        assert {each.state.name for each in fresh.table} == {"PREPARE_COMMIT"}
        fresh.attach(rig.log.journal)
        assert {each.state.name for each in fresh.table} == {"COMPLETE_COMMIT"}

        (row,) = batches.snapshot()
        again = BatchCommits(fresh, lambda: rig.now_ms)
        again.load(row.value)
        assert again.find_last(APPLICATION) == batches.find_last(APPLICATION)
        rig.now_ms += 8 * 86_400_000
        assert again.forget_expired() == 1
        assert again.find_last(APPLICATION) is None
        assert [each.value for each in again.snapshot()] == [None]


@on_loop
async def test_applications_are_bounded_and_authorized():
    async with Rig() as rig:
        rig.topic(TOPIC)
        (writer,) = await open_writers(rig, "a")
        peer = rig.peer()
        rig.broker.transactions.limits = TransactionLimits(ids_max=1)
        assert (await commit(peer, 1, application="first")).error_code == 0
        assert (await commit(peer, 1, application="second")).error_code != 0

        rig.rules.deny(Operation.WRITE, ResourceKind.TRANSACTION, "a")
        assert (await commit(peer, 2, writer, application="first")).error_code == NOT_AUTHORIZED
        rig.rules.deny(Operation.WRITE, ResourceKind.TRANSACTION, "first")
        assert (await commit(peer, 2, application="first")).error_code == NOT_AUTHORIZED
        assert await last_batch(peer, "first") == 1


@on_loop
@pytest.mark.parametrize(("software", "listed"), [("trilogue", OWN_KEYS), ("librdkafka", set())])
async def test_our_client_alone_sees_them(software, listed):
    async with Rig() as rig:
        answer = await rig.peer().request(
            ApiVersionsRequest(client_software_name=software, client_software_version="1"), 3
        )
        assert {row.api_key for row in answer.api_keys} & OWN_KEYS == listed
