"""Ports of several nodes."""

from __future__ import annotations

import pytest

from trilogue.node.errors import StartError
from trilogue.node.settings.sources import load_settings
from trilogue.node.settings.table import Settings
from trilogue.node.supervisor.node_settings import check_ports, node_settings


def settings(*assignments: str) -> Settings:
    return load_settings(environment={}, assignments=assignments)


def test_each_node_listens_a_hundred_ports_further():
    third = node_settings(settings("advertise.kafka=broker:19092"), 3)

    assert third.text("listen.kafka") == "127.0.0.1:9292"
    assert third.text("advertise.kafka") == "broker:19292"
    assert third.text("listen.kafka-ssl") == "off"


def test_free_ports_stay_free_ones():
    assert (
        node_settings(settings("listen.kafka=127.0.0.1:0"), 2).text("listen.kafka").endswith(":0")
    )


def test_a_port_that_does_not_exist_is_refused():
    with pytest.raises(StartError, match=r"listen.kafka .*port 65600"):
        node_settings(settings("listen.kafka=127.0.0.1:65500"), 2)


def test_two_listeners_at_one_address_are_named():
    given = settings("listen.kafka=127.0.0.1:9000", "listen.pulsar=127.0.0.1:9100")
    nodes = {node_id: node_settings(given, node_id) for node_id in (1, 2)}

    with pytest.raises(StartError, match=r"of node 2 and .* of node 1 .*127.0.0.1:9100"):
        check_ports(nodes)
