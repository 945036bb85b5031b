"""Transactions from the requests of a producer: what is committed, aborted, fenced, timed out."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gateway.kafka.rig import NOW_MS, Peer, Rig, batch, settle
from tests.gateway.loop import on_loop
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.facts import Protocol
from trilogue.broker.transactions import coordinator
from trilogue.broker.transactions.transaction import TransactionLimits
from trilogue.wire.kafka.fetch import FetchPartition, FetchRequest, FetchTopic
from trilogue.wire.kafka.groups.committed_offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from trilogue.wire.kafka.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from trilogue.wire.kafka.transactions.add_offsets import AddOffsetsToTxnRequest
from trilogue.wire.kafka.transactions.add_partitions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from trilogue.wire.kafka.transactions.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersTopic,
)
from trilogue.wire.kafka.transactions.describe_transactions import DescribeTransactionsRequest
from trilogue.wire.kafka.transactions.end_txn import EndTxnRequest
from trilogue.wire.kafka.transactions.init_producer_id import InitProducerIdRequest
from trilogue.wire.kafka.transactions.list_transactions import ListTransactionsRequest
from trilogue.wire.kafka.transactions.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from trilogue.wire.kafka.transactions.write_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

TX, TOPIC, GROUP = "tx", "orders", "readers"
TIMEOUT_MS = 60_000
POLICY_VIOLATION, ABORTABLE = 44, 120
INVALID_EPOCH, INVALID_STATE, WRONG_MAPPING, WRONG_TIMEOUT = 47, 48, 49, 50
CONCURRENT, FENCED, UNSTABLE = 51, 90, 88


class Writer:
    """A transactional producer, by hand; `new` has the requests of transaction version 2."""

    def __init__(self, peer: Peer, *, new: bool = False, name: str = TX) -> None:
        self.peer, self.new, self.name = peer, new, name
        self.id = self.epoch = -1
        self.sequence = 0

    async def init(self, *, known: bool = False, timeout_ms: int = TIMEOUT_MS) -> int:
        given = {"producer_id": self.id, "producer_epoch": self.epoch} if known else {}
        answer = await self.peer.request(
            InitProducerIdRequest(
                transactional_id=self.name, transaction_timeout_ms=timeout_ms, **given
            ),
            5,
        )
        if not answer.error_code:
            self.id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0
        return answer.error_code

    async def add(self, *partitions: int, topic: str = TOPIC) -> list[int]:
        answer = await self.peer.request(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.name,
                v3_and_below_producer_id=self.id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[
                    AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))
                ],
            ),
            3,
        )
        (found,) = answer.results_by_topic_v3_and_below
        return [each.partition_error_code for each in found.results_by_partition]

    async def write(
        self, *values: str, partition: int = 0, name: str | None = "", version: int = 0
    ) -> int:
        records = batch(
            *values,
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            transactional=True,
        )
        answer = await self.peer.request(
            ProduceRequest(
                transactional_id=self.name if name == "" else name,
                acks=-1,
                timeout_ms=1_000,
                topic_data=[
                    TopicProduceData(
                        name=TOPIC,
                        partition_data=[PartitionProduceData(index=partition, records=records)],
                    )
                ],
            ),
            version or (12 if self.new else 9),
        )
        code = answer.responses[0].partition_responses[0].error_code
        if not code:
            self.sequence += len(values)
        return code

    async def end(self, *, commit: bool = True) -> int:
        answer = await self.peer.request(
            EndTxnRequest(
                transactional_id=self.name,
                producer_id=self.id,
                producer_epoch=self.epoch,
                committed=commit,
            ),
            5 if self.new else 3,
        )
        if self.new and not answer.error_code:
            self.id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0
        return answer.error_code

    async def move(
        self, offset: int, *, group: str = GROUP, partition: int = 0, version: int | None = None
    ) -> int:
        answer = await self.peer.request(
            TxnOffsetCommitRequest(
                transactional_id=self.name,
                group_id=group,
                producer_id=self.id,
                producer_epoch=self.epoch,
                topics=[
                    TxnOffsetCommitRequestTopic(
                        name=TOPIC,
                        partitions=[
                            TxnOffsetCommitRequestPartition(
                                partition_index=partition,
                                committed_offset=offset,
                                committed_metadata=None,
                            )
                        ],
                    )
                ],
            ),
            (5 if self.new else 3) if version is None else version,
        )
        return answer.topics[0].partitions[0].error_code

    async def add_group(self, group: str = GROUP) -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.name,
            producer_id=self.id,
            producer_epoch=self.epoch,
            group_id=group,
        )
        return (await self.peer.request(request, 3)).error_code


async def read(rig: Rig, partition: int = 0) -> tuple[str, int, int]:
    """Return what a read_committed fetch has: the bytes as text, stable end, aborted ones."""
    answer = await rig.peer().request(
        FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            isolation_level=1,
            topics=[
                FetchTopic(
                    topic=TOPIC,
                    partitions=[
                        FetchPartition(
                            partition=partition, fetch_offset=0, partition_max_bytes=1 << 20
                        )
                    ],
                )
            ],
        ),
        11,
    )
    found = answer.responses[0].partitions[0]
    records = b"" if found.records is None else bytes(found.records)
    return records.decode("latin-1"), found.last_stable_offset, len(found.aborted_transactions)


@pytest.fixture(params=[False, True], ids=["version 1", "version 2"])
def new(request: Any) -> bool:
    return request.param


@on_loop
async def test_a_commit_shows_what_was_written_and_an_abort_hides_it(new):
    async with Rig() as rig:
        rig.topic(TOPIC, 2)
        writer = Writer(rig.peer(), new=new)
        assert await writer.init() == 0
        for commit, text in ((True, "first"), (False, "second"), (True, "third")):
            if not new:
                assert await writer.add(0, 1) == [0, 0]
            assert await writer.write(text) == 0
            shown, _, _ = await read(rig)
            assert text not in shown
            assert await writer.end(commit=commit) == 0

        shown, stable_end, aborted = await read(rig)
        assert "first" in shown
        assert "third" in shown
        assert aborted == 1
        assert stable_end == 6


@on_loop
async def test_positions_move_with_the_commit_only(new):
    async with Rig() as rig:
        topic = rig.topic(TOPIC)
        writer = Writer(rig.peer(), new=new)
        await writer.init()

        async def fetch(*, stable: bool = True) -> tuple[int, int]:
            asked = OffsetFetchRequestGroup(
                group_id=GROUP,
                topics=[OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])],
            )
            request = OffsetFetchRequest(groups=[asked], require_stable=stable)
            answer = await rig.peer().request(request, 8)
            found = answer.groups[0].topics[0].partitions[0]
            return found.committed_offset, found.error_code

        for commit, offset, expected in ((False, 5, -1), (True, 7, 7)):
            if not new:
                assert await writer.add_group() == 0
            assert await writer.move(offset) == 0
            assert await fetch() == (-1, UNSTABLE)
            assert await fetch(stable=False) == (-1, 0)
            assert await writer.end(commit=commit) == 0
            assert await fetch() == (expected, 0)
        partition_id = topic.partitions[0].partition_id
        position = rig.broker.committed_offsets.position(Protocol.KAFKA, GROUP, partition_id)
        assert position is not None


@on_loop
async def test_a_new_producer_fences_the_old_one_and_aborts_its_transaction(new):
    async with Rig() as rig:
        rig.topic(TOPIC)
        old, young = Writer(rig.peer(), new=new), Writer(rig.peer(), new=new)
        await old.init()
        if not new:
            await old.add(0)
        await old.write("of the zombie")

        assert await young.init() == 0
        assert (young.id, young.epoch) == (old.id, old.epoch + 1)
        assert await old.write("late") == INVALID_EPOCH
        assert await old.add(0) == [FENCED]
        assert await old.end() == FENCED
        assert await old.init(known=True) == FENCED
        if not new:
            await young.add(0)
        assert await young.write("of the young one") == 0
        assert await young.end() == 0

        shown, _, aborted = await read(rig)
        assert "of the young one" in shown
        assert "late" not in shown
        assert aborted == 1


@on_loop
async def test_request_in_a_wrong_transaction_state_is_refused():
    async with Rig() as rig:
        rig.topic(TOPIC, 2)
        writer = Writer(rig.peer())
        assert await writer.init(timeout_ms=0) == WRONG_TIMEOUT
        assert await writer.init(timeout_ms=900_001) == WRONG_TIMEOUT
        assert await Writer(rig.peer(), name="").init() == 42
        assert await Writer(rig.peer(), name="").end() == 42
        assert await writer.init() == 0

        assert await writer.end() == INVALID_STATE
        assert await writer.write("outside") == INVALID_STATE
        assert await writer.move(1) == INVALID_STATE
        assert await writer.add(0) == [0]
        assert await writer.write("another partition", partition=1) == INVALID_STATE
        assert await writer.write("no id", name=None) == 53
        assert await writer.write("inside") == 0
        assert await writer.end() == 0
        assert await writer.end() == 0, "repeated"
        assert await writer.end(commit=False) == INVALID_STATE
        assert await Writer(rig.peer(), name="unknown").end() == WRONG_MAPPING
        writer.id += 1
        assert await writer.add(0) == [WRONG_MAPPING]


@on_loop
async def test_a_part_that_was_not_added_is_abortable_for_newer_clients():
    """As a real Kafka 3.9.1 and 4.3.1 answer."""
    async with Rig() as rig:
        rig.topic(TOPIC, 2)
        writer = Writer(rig.peer())
        await writer.init()
        await writer.add(0)
        for version, code in ((10, INVALID_STATE), (11, ABORTABLE)):
            assert await writer.write("outside", partition=1, version=version) == code
        for version, code in ((3, INVALID_STATE), (4, ABORTABLE)):
            assert await writer.move(1, version=version) == code
        for version in (0, 3, 4):
            stranger = Writer(rig.peer(), name="unknown")
            stranger.id = stranger.epoch = 999
            assert await stranger.move(1, version=version) == WRONG_MAPPING


def divide(rig: Rig) -> None:
    """Play a move of slots after which other nodes have a part of each open transaction."""
    rig.broker.branches.have_left = lambda _contained: True  # type: ignore[method-assign]
    for each in rig.broker.transactions.table:
        rig.broker.transactions.abort_divided(each)


@on_loop
async def test_a_producer_goes_on_whose_transaction_a_move_has_divided():
    """Its requests are refused as abortable (KIP-890); after its own abort it begins the next."""
    async with Rig() as rig:
        rig.topic(TOPIC, 2)
        writer = Writer(rig.peer(), new=True)
        await writer.init()
        await writer.write("divided")
        await writer.move(1)
        divide(rig)
        await settle()

        assert await writer.write("late", partition=1) == ABORTABLE
        assert await writer.move(2) == ABORTABLE
        assert await writer.end() == ABORTABLE
        assert await writer.end(commit=False) == 0
        former = Writer(rig.peer(), new=True)
        former.id, former.epoch = writer.id, writer.epoch - 1
        await writer.write("whole")
        assert await writer.end() == 0
        assert await former.end() == FENCED, "only the last identity may be a delayed one"
        shown, _, aborted = await read(rig)
        assert "whole" in shown
        assert aborted == 1


@on_loop
async def test_a_divided_transaction_fences_older_clients_and_those_that_lost_their_id():
    async with Rig() as rig:
        rig.topic(TOPIC)
        writer = Writer(rig.peer())
        await writer.init()
        await writer.add(0)
        await writer.add_group()
        await writer.move(1)
        divide(rig)
        await settle()

        assert await writer.add(0) == [FENCED]
        assert await writer.move(2, version=3) == INVALID_EPOCH
        assert await writer.end() == FENCED
        assert await writer.end(commit=False) == 0, "it is aborted"
        assert await writer.init(known=True) == 0, "KIP-360"
        assert await Writer(rig.peer()).init() == 0
        assert await writer.end(commit=False) == FENCED


@on_loop
async def test_open_transactions_have_a_bound_of_parts_together():
    async with Rig() as rig:
        topic = rig.topic(TOPIC, 4)
        table = rig.broker.transactions.table
        rig.broker.transactions.limits = TransactionLimits(parts_max=5)
        writer, other = Writer(rig.peer()), Writer(rig.peer(), name="other")
        for each in (writer, other):
            await each.init()
        assert await writer.add(0, 1) == [0, 0]
        assert await writer.add(0, 1) == [0, 0]
        assert await writer.add_group() == 0
        assert await writer.move(7) == 0
        assert table.part_count == 4

        assert await other.add(2, 3) == [POLICY_VIOLATION] * 2
        assert await other.add(2) == [0]
        assert await writer.move(8, partition=1) == POLICY_VIOLATION
        assert await writer.end() == 0
        assert await other.add(3) == [0]
        await rig.commit(rig.broker.cluster.plan_delete(topic.name))
        assert await other.end(commit=False) == 0

        assert table.part_count == 0


@on_loop
async def test_transactions_that_time_out_together_are_aborted_in_steps(monkeypatch):
    monkeypatch.setattr(coordinator, "PARTS_A_STEP", 4)
    async with Rig() as rig:
        rig.topic(TOPIC)
        for number in range(5):
            writer = Writer(rig.peer(), name=f"late-{number}")
            await writer.init(timeout_ms=1_000)
            await writer.add(0)
        rig.now_ms += 1_001

        assert list(rig.broker.transactions.abort_expired()) == [2, 2, 1]
        assert list(rig.broker.transactions.abort_expired()) == [0]


@on_loop
async def test_of_several_partitions_all_are_added_or_none():
    async with Rig() as rig:
        rig.topic(TOPIC)
        writer = Writer(rig.peer())
        await writer.init()

        assert await writer.add(0, 5) == [55, 3]
        assert await writer.write("x") == INVALID_STATE


@on_loop
async def test_a_delayed_end_does_not_touch_the_next_transaction():
    """KIP-890: the epoch of version 2 moves with each end."""
    async with Rig() as rig:
        rig.topic(TOPIC)
        writer = Writer(rig.peer(), new=True)
        await writer.init()
        await writer.write("first")
        delayed = Writer(rig.peer(), new=True)
        delayed.id, delayed.epoch = writer.id, writer.epoch
        assert await writer.end() == 0
        assert writer.epoch == delayed.epoch + 1
        await writer.write("second")

        assert await delayed.end(commit=False) == FENCED
        assert await delayed.write("late") == INVALID_EPOCH
        assert await writer.end() == 0
        shown, _, aborted = await read(rig)
        assert "second" in shown
        assert aborted == 0


@on_loop
async def test_a_repeated_end_of_version_2_gets_the_same_answer():
    async with Rig() as rig:
        rig.topic(TOPIC)
        writer = Writer(rig.peer(), new=True)
        await writer.init()
        await writer.write("x")
        again = Writer(rig.peer(), new=True)
        again.id, again.epoch = writer.id, writer.epoch
        await writer.end()

        assert await again.end() == 0
        assert (again.id, again.epoch) == (writer.id, writer.epoch)
        assert await again.end(commit=False) == 0, "nothing was written: only the epoch moves"
        assert again.epoch == writer.epoch + 1


@on_loop
async def test_epochs_that_are_used_up_give_another_producer_id():
    async with Rig() as rig:
        rig.topic(TOPIC)
        writer = Writer(rig.peer(), new=True)
        await writer.init()
        first = writer.id
        transaction = rig.broker.transactions.table.find_by_id(TX)
        transaction.row = transaction.row._replace(epoch=32_766)
        writer.epoch = 32_766
        assert await writer.write("last of the old id") == 0
        again = Writer(rig.peer(), new=True)
        again.id, again.epoch = writer.id, writer.epoch

        assert await writer.end() == 0
        assert writer.id != first
        assert writer.epoch == 0
        assert await again.end() == 0, "a repeated request of the former id"
        assert again.id == writer.id
        assert await writer.write("first of the new id") == 0
        assert await writer.end() == 0
        shown, _, _ = await read(rig)
        assert "last of the old id" in shown
        assert "first of the new id" in shown


@on_loop
async def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_recovers():
    async with Rig() as rig:
        rig.topic(TOPIC)
        writer = Writer(rig.peer(), new=True)
        await writer.init()
        await writer.write("too slow")
        rig.now_ms += TIMEOUT_MS - 1
        assert sum(rig.broker.transactions.abort_expired()) == 0
        rig.now_ms += 1
        assert sum(rig.broker.transactions.abort_expired()) == 1
        await settle()

        assert await writer.end() == FENCED
        assert await writer.init(known=True) == 0, "KIP-588"
        await writer.write("in time")
        assert await writer.end() == 0
        shown, stable_end, aborted = await read(rig)
        assert "in time" in shown
        assert (stable_end, aborted) == (4, 1)


@on_loop
async def test_tools_see_transactions_and_end_hanging_ones():
    async with Rig() as rig:
        rig.topic(TOPIC)
        writer, peer = Writer(rig.peer()), rig.peer()
        await writer.init()
        await writer.add(0)
        await writer.write("hanging")

        listed = await peer.request(ListTransactionsRequest(state_filters=["Ongoing"]), 2)
        assert [each.transactional_id for each in listed.transaction_states] == [TX]
        other = await peer.request(ListTransactionsRequest(transactional_id_pattern="y.*"), 2)
        assert not other.transaction_states
        described = await peer.request(DescribeTransactionsRequest(transactional_ids=[TX]), 0)
        (found,) = described.transaction_states
        assert (found.transaction_state, found.transaction_start_time_ms) == ("Ongoing", NOW_MS)
        assert [(each.topic, each.partitions) for each in found.topics] == [(TOPIC, [0])]
        request = DescribeProducersRequest(
            topics=[DescribeProducersTopic(name=TOPIC, partition_indexes=[0])]
        )
        producers = await peer.request(request, 0)
        (active,) = producers.topics[0].partitions[0].active_producers
        assert active.current_txn_start_offset == 0

        def markers(*, commit: bool, epoch: int = 0) -> WriteTxnMarkersRequest:
            return WriteTxnMarkersRequest(
                markers=[
                    WritableTxnMarker(
                        producer_id=writer.id,
                        producer_epoch=epoch,
                        transaction_result=commit,
                        topics=[WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[0, 1])],
                        coordinator_epoch=0,
                    )
                ]
            )

        async def write_markers(**how: Any) -> list[int]:
            answer = await peer.request(markers(**how), 1)
            return [each.error_code for each in answer.markers[0].topics[0].partitions]

        assert await write_markers(commit=True) == [31, 31]
        assert await write_markers(commit=False, epoch=-1) == [INVALID_EPOCH, 3]
        assert await write_markers(commit=False) == [0, 3]
        _, stable_end, aborted = await read(rig)
        assert (stable_end, aborted) == (2, 1)
        rig.rules.deny(Operation.CLUSTER_ACTION, ResourceKind.CLUSTER, "cluster")
        rig.rules.deny(Operation.ALTER, ResourceKind.CLUSTER, "cluster")
        assert await write_markers(commit=False) == [31, 31]


@on_loop
async def test_adding_partitions_for_other_brokers_needs_the_right_of_brokers():
    async with Rig() as rig:
        rig.topic(TOPIC)
        rig.rules.deny(Operation.CLUSTER_ACTION, ResourceKind.CLUSTER, "cluster")
        request = AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnTransaction(
                    transactional_id=TX,
                    topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])],
                )
            ]
        )
        assert (await rig.peer().request(request, 5)).error_code == 31


@on_loop
async def test_a_topic_that_is_deleted_meanwhile_does_not_hold_the_end():
    async with Rig() as rig:
        topic = rig.topic(TOPIC)
        writer = Writer(rig.peer())
        await writer.init()
        await writer.add(0)
        await writer.write("lost")
        await rig.commit(rig.broker.cluster.plan_delete(topic.name))

        assert await writer.end() == 0


@on_loop
async def test_state_is_the_same_after_a_restart_from_a_snapshot_and_from_facts():
    async with Rig() as rig:
        rig.topic(TOPIC)
        writer, other = Writer(rig.peer()), Writer(rig.peer(), name="other")
        await writer.init()
        await writer.add(0)
        await writer.add_group()
        await writer.move(9)
        await other.init()
        rows = {row.key: row.value for row in rig.broker.transactions.table.snapshot()}
        assert set(rows) == {b"ttx", b"tother"}

        fresh = rig.make_coordinator()
        for value in rows.values():
            fresh.table.load(value)
        before = rig.broker.transactions.table.find_by_id(TX)
        after = fresh.table.find_by_id(TX)
        assert after.row == before.row
        assert after.content() == before.content()
        partition_id = rig.broker.cluster.topic(next(iter(rig.broker.cluster)).name)
        assert fresh.table.pending_positions(GROUP) == {partition_id.partitions[0].partition_id}
        assert fresh.table.part_count == rig.broker.transactions.table.part_count == 3
        rig.now_ms += 8 * 86_400_000
        fresh.attach(rig.log.journal)
        assert fresh.forget_expired() == 1
        assert fresh.table.find_by_id("other") is None
