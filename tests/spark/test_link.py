"""A process's link to a server: one for all tasks of a worker, none for a process it forks."""

from __future__ import annotations

import os

from tests.client.scripted import FETCH, HANG_UP, OFFSETS, Part
from trilogue.spark import link as links
from trilogue.spark.link import link


def test_a_process_has_one_link_to_a_server(scripted_kafka):
    assert link(scripted_kafka.address) is link(scripted_kafka.address)


def test_a_forked_process_makes_its_own(scripted_kafka, monkeypatch):
    """A socket that two processes read from would give each half of the answers."""
    parents = link(scripted_kafka.address)
    parent = os.getpid()

    monkeypatch.setattr(os, "getpid", lambda: parent + 1)
    from_child = link(scripted_kafka.address)
    monkeypatch.undo()

    assert from_child is not parents
    links._links.pop((parent + 1, scripted_kafka.address)).loop.close()


def test_a_connection_that_broke_between_two_tasks_is_made_again(scripted_kafka):
    scripted_kafka.parts["t", 0] = Part(end=7)
    at = link(scripted_kafka.address)
    first = at.resolve({("t", 0): -1})
    scripted_kafka.next_up[OFFSETS].append(HANG_UP)

    assert first == at.resolve({("t", 0): -1}) == {("t", 0): 7}


def test_what_is_dropped_is_not_waited_for(scripted_kafka):
    scripted_kafka.parts["t", 0] = Part(end=7)
    at = link(scripted_kafka.address)
    scripted_kafka.next_up[FETCH].append("silence")

    at.drop(at.start(at.consumer.fetch("t", 0, 0)))

    assert at.resolve({("t", 0): -1}) == {("t", 0): 7}
