"""What clients are told to connect to."""

from __future__ import annotations

import pytest

from trilogue.node.addresses import Address, parse_address
from trilogue.node.advertise import advertised


@pytest.mark.parametrize(
    ("setting", "listens", "bound", "expected"),
    [
        ("", "127.0.0.1:0", "127.0.0.1:4711", "127.0.0.1:4711"),
        ("", "localhost:9092", "127.0.0.1:9092", "localhost:9092"),
        ("", "0.0.0.0:9092", "0.0.0.0:9092", "machine:9092"),
        ("", "[::]:9092", "[::]:9092", "machine:9092"),
        ("broker.example:9092", "0.0.0.0:9092", "0.0.0.0:9092", "broker.example:9092"),
        ("broker.example:0", "0.0.0.0:0", "0.0.0.0:4711", "broker.example:4711"),
    ],
)
def test_clients_come_back_to_an_address_that_exists(setting, listens, bound, expected):
    told = advertised(
        setting,
        listens=parse_address(listens),
        bound=parse_address(bound),
        machine_name=lambda: "machine",
    )

    assert expected == str(told)


def test_ipv6_literals_are_told_without_brackets():
    told = advertised(
        "", listens=Address("::1", 0), bound=Address("::1", 9), machine_name=lambda: "machine"
    )

    assert told == Address("::1", 9)
