"""Which listeners may be opened on which addresses."""

from __future__ import annotations

import asyncio
import errno

import pytest

from trilogue.node.addresses import Address
from trilogue.node.errors import StartError
from trilogue.node.listeners import ListenerPlan, bind_listener, plan_listeners
from trilogue.node.settings.sources import load_settings
from trilogue.node.settings.table import LISTENERS


def planned(*assignments):
    return plan_listeners(load_settings(environment={}, assignments=assignments))


def test_by_default_every_listener_is_for_this_machine_only():
    assert {door.literals for door in planned().values()} == {
        (Address("127.0.0.1", 9092),),
        (Address("127.0.0.1", 6650),),
        (Address("127.0.0.1", 8715),),
        (Address("127.0.0.1", 8123),),
        (Address("127.0.0.1", 8080),),
    }


@pytest.mark.parametrize("door", ["kafka", "pulsar", "tubemq-master", "http"])
@pytest.mark.parametrize("address", ["0.0.0.0:1", "[::]:1", "192.0.2.1:1", "[::ffff:192.0.2.1]:1"])
def test_an_address_that_others_reach_needs_insecure(door, address):
    with pytest.raises(StartError, match="--insecure") as refusal:
        planned(f"listen.{door}={address}")
    assert refusal.value.code == 2

    assert door in planned(f"listen.{door}={address}", "insecure=true")


def test_a_listener_that_is_off_is_not_planned():
    assert set(planned("listen.http=off")) == set(LISTENERS) - {"http"}


DOOR = ListenerPlan("kafka", Address("localhost", 0), (Address("127.0.0.1", 0), Address("::1", 0)))


def bind(refusals):
    """A `bind` that gives port 4711 for 0 and refuses some hosts."""

    async def taken(host, port):
        if host in refusals:
            raise OSError(refusals[host], "no")
        return host, port or 4711

    return asyncio.run(bind_listener(DOOR, taken))


def test_all_literals_of_a_name_share_one_port():
    requested = []

    async def taken(host, port):
        requested.append((host, port))
        return host, port or 4711

    assert asyncio.run(bind_listener(DOOR, taken)) == Address("127.0.0.1", 4711)
    assert requested == [("127.0.0.1", 0), ("::1", 4711)]


def test_a_literal_that_this_machine_does_not_have_is_passed_over():
    assert bind({"::1": errno.EADDRNOTAVAIL}) == Address("127.0.0.1", 4711)
    assert bind({"127.0.0.1": errno.EAFNOSUPPORT}) == Address("::1", 4711)


@pytest.mark.parametrize(
    "refusals",
    [
        {"127.0.0.1": errno.EADDRINUSE},
        {"127.0.0.1": errno.EACCES},
        {"127.0.0.1": errno.EADDRNOTAVAIL, "::1": errno.EADDRNOTAVAIL},
    ],
)
def test_a_listener_that_cannot_be_opened_is_named(refusals):
    with pytest.raises(StartError, match="kafka cannot listen on"):
        bind(refusals)
