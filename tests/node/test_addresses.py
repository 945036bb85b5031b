"""Addresses: how they are written, and who can reach them."""

from __future__ import annotations

import pytest

from trilogue.node.addresses import (
    Address,
    AddressError,
    choose_advertised,
    find_shared_addresses,
    is_loopback,
    is_wildcard,
    parse_address,
    resolve,
)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:9092", "127.0.0.1", 9092),
        ("[::1]:9092", "::1", 9092),
        ("broker.example:0", "broker.example", 0),
    ],
)
def test_host_and_port_are_read_and_written_alike(text, host, port):
    address = parse_address(text)

    assert (host, port) == (address.host, address.port)
    assert text == str(address)


@pytest.mark.parametrize(
    "text",
    ["", "9092", ":9092", "host", "host:", "host:65536", "host:-1", "host:٣", "::1:9092", "[::1]",
     "[host]:1", "a b:1", "http://host:1", "user@host:1"],
)  # fmt: skip
def test_invalid_address_is_refused(text):
    with pytest.raises(AddressError):
        parse_address(text)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("fe80::1%eth0", False),
    ],
)
def test_loopback_is_what_no_other_machine_reaches(host, expected):
    assert expected == is_loopback(Address(host, 1))


def test_wildcards_are_known():
    assert is_wildcard(Address("0.0.0.0", 1))
    assert is_wildcard(Address("::", 1))
    assert not is_wildcard(Address("127.0.0.1", 1))


def test_localhost_stands_for_loopback_literals():
    literals = resolve(Address("localhost", 9092))

    assert literals
    assert all(is_loopback(literal) and literal.port == 9092 for literal in literals)


def test_a_host_that_does_not_resolve_is_refused():
    with pytest.raises(AddressError, match="does not resolve"):
        resolve(Address("no-such-host.invalid", 1))


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
    address = choose_advertised(
        setting,
        listens=parse_address(listens),
        bound=parse_address(bound),
        machine_name=lambda: "machine",
    )

    assert expected == str(address)


def test_ipv6_literals_are_advertised_without_brackets():
    address = choose_advertised(
        "", listens=Address("::1", 0), bound=Address("::1", 9), machine_name=lambda: "machine"
    )

    assert address == Address("::1", 9)


def test_an_address_that_another_node_advertises_is_found():
    advertised = {"kafka": "127.0.0.1:9092", "pulsar": "two:6650"}
    others = {1: {"kafka": "127.0.0.1:9092", "pulsar": "one:6650"}, 3: {"http": "two:6650"}}

    assert find_shared_addresses(advertised, others) == [(1, "kafka", "127.0.0.1:9092")]
