"""The job that removes positions whose time is over."""

from __future__ import annotations

import logging
import time

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.broker.keeping_room import Room
from tests.gateway.loop import on_loop
from tests.node.clients import consume, produce
from tests.server import start_server
from tests.waiting import wait_until
from trilogue.log import errors as log_errors
from trilogue.node.background.offset_expiry import OffsetExpiry


@on_loop
async def test_expiry_removes_due_offsets_and_logs_their_number(caplog):
    room = Room("t", "u")
    room.commit("g", "t", "u")
    job = OffsetExpiry(room.broker, room.timers.now_ms, every_s=1)
    caplog.set_level(logging.INFO)

    await job.remove_expired()
    silent = list(caplog.records)
    room.days(7)
    await job.remove_expired()
    room.log.commit()

    assert silent == []
    assert [(each.message, each.positions) for each in caplog.records] == [("groups.expired", 2)]
    assert room.topics_of("g") == set()


@on_loop
async def test_a_disk_that_refuses_ends_a_look_with_a_line_and_the_next_one_goes_on(caplog):
    room = Room("t")
    room.commit("g", "t")
    job = OffsetExpiry(room.broker, room.timers.now_ms, every_s=1)
    room.days(7)

    room.refuse(log_errors.TailFull("full"))
    await job.remove_expired()
    (line,) = caplog.records
    room.refuse(None)
    await job.remove_expired()
    room.log.commit()

    assert line.message == "groups.expiry_failed"
    assert room.topics_of("g") == set()


@pytest.mark.parametrize("retention", ["1s", "1d"])
def test_a_server_forgets_a_group_that_no_client_comes_back_to(tmp_path, retention):
    settings = {"groups.offset-retention": retention, "groups.offset-check": "100ms"}
    with start_server(tmp_path / "data", settings=settings) as server:
        produce(server, "t", [b"v"])
        consumer = Consumer({"bootstrap.servers": server.kafka, "group.id": "h"})
        consumer.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
        consumer.close()
        consume(server, "t", 1)
        admin = AdminClient({"bootstrap.servers": server.kafka})

        def offset() -> int:
            requested = [ConsumerGroupTopicPartitions("h", [TopicPartition("t", 0)])]
            (answer,) = admin.list_consumer_group_offsets(requested).values()
            return answer.result(60).topic_partitions[0].offset

        if retention == "1s":
            wait_until(lambda: offset() < 0, "the expiry of the offset")
        else:
            time.sleep(2)  # by design: in this time the shorter retention removes the offset
            assert offset() >= 0
        names = {group.group_id for group in admin.list_consumer_groups().result(60).valid}
        assert ("h" in names) == (retention == "1d")
