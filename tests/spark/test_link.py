"""A process's link to a server: one for all tasks of a worker, none for a process it forks."""

from __future__ import annotations

import os

from tests.client.scripted import FETCH, HANG_UP, OFFSETS, Part
from trilogue.client.kafka.connection import IN_CLEAR
from trilogue.client.kafka.model import READ_COMMITTED
from trilogue.spark import link as links
from trilogue.spark.link import link
from trilogue.spark.write_options import WriteOptions

LOGIN = {
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.username": "u",
    "kafka.sasl.password": "p",
}


def options(server, **more) -> WriteOptions:
    return WriteOptions.parse({"kafka.bootstrap.servers": server.address, **more})


def test_a_process_has_one_link_to_a_server(scripted_kafka):
    assert link(options(scripted_kafka)) is link(options(scripted_kafka))


def test_another_login_is_another_link(scripted_kafka):
    first = options(scripted_kafka, **LOGIN)
    second = options(scripted_kafka, **{**LOGIN, "kafka.sasl.password": "q"})

    made = [link(first), link(second)]

    assert made[0] is link(options(scripted_kafka, **LOGIN))
    assert made[0] is not made[1]
    for one in (first, second):
        links._links.pop((os.getpid(), one.servers, one.security, READ_COMMITTED)).loop.close()


def test_a_forked_process_makes_its_own(scripted_kafka, monkeypatch):
    """A socket that two processes read from would give each half of the answers."""
    parents = link(options(scripted_kafka))
    parent = os.getpid()

    monkeypatch.setattr(os, "getpid", lambda: parent + 1)
    from_child = link(options(scripted_kafka))
    monkeypatch.undo()

    assert from_child is not parents
    links._links.pop((parent + 1, scripted_kafka.address, IN_CLEAR, READ_COMMITTED)).loop.close()


def test_a_connection_that_broke_between_two_tasks_is_made_again(scripted_kafka):
    scripted_kafka.parts["t", 0] = Part(end=7)
    at = link(options(scripted_kafka))
    first = at.resolve({("t", 0): -1})
    scripted_kafka.next_up[OFFSETS].append(HANG_UP)

    assert first == at.resolve({("t", 0): -1}) == {("t", 0): 7}


def test_dropped_request_does_not_delay_others(scripted_kafka):
    scripted_kafka.parts["t", 0] = Part(end=7)
    at = link(options(scripted_kafka))
    scripted_kafka.next_up[FETCH].append("silence")

    at.drop(at.start(at.consumer.fetch("t", 0, 0)))

    assert at.resolve({("t", 0): -1}) == {("t", 0): 7}
