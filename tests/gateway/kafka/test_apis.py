"""THE TABLE: complete, consistent with the declared messages and with ApiVersions."""

from __future__ import annotations

import pytest

from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.gateway.kafka import apis
from trilogue.wire.kafka.api import MESSAGES, OWN_KEYS
from trilogue.wire.kafka.codec.schema import table

ROWS = pytest.mark.parametrize("row", apis.TABLE, ids=lambda row: row.name)

# APIs between brokers, which clients may not use (docs/reference/wire/kafka.md).
INTERNAL = {4, 5, 6, 7, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82, 83, 84, 85, 86, 87}


@ROWS
def test_every_row_names_its_resource_and_operation(row):
    assert isinstance(row.resource, ResourceKind)
    assert isinstance(row.operation, Operation)


@ROWS
def test_served_versions_are_in_the_message_tables(row):
    assert (row.request, row.response) == MESSAGES[row.key]
    for version in range(row.served[0], row.served[1] + 1):
        assert version in table(row.request)
        assert version in table(row.response)


@ROWS
def test_every_served_version_has_a_codec(row):
    for version in range(row.served[0], row.served[1] + 1):
        api = apis.find_api(row.key << 16 | version)
        assert api is not None
        assert (api.spec, api.version) == (row, version)


@ROWS
def test_versions_outside_the_range_are_not_served(row):
    assert apis.find_api(row.key << 16 | row.served[1] + 1) is None
    assert apis.find_api(row.key << 16 | 0xFFFF) is None
    if row.served[0]:
        assert apis.find_api(row.key << 16 | row.served[0] - 1) is None


def test_keys_are_unique_and_no_request_of_brokers_is_served():
    """Forged internals are refused."""
    keys = [row.key for row in apis.TABLE]

    assert len(keys) == len(set(keys))
    assert not INTERNAL & set(keys)


def test_api_versions_matches_the_table():
    listed = {
        each.api_key: (each.min_version, each.max_version) for each in apis.advertised_versions()
    }

    assert listed == {
        row.key: row.served for row in apis.TABLE if row.advertised and row.key < OWN_KEYS
    }


def test_the_ranges_begin_with_the_first_versions():
    """All versions from v0 to the newest; v0 of share groups was never stable."""
    later = {row.key for row in apis.TABLE if row.served[0]}
    assert later == {76, 77, 78, 79}


def test_the_ranges_reach_what_todays_clients_send():
    """The highest version that each client chose."""
    sent = {0: 13, 1: 18, 2: 11, 3: 13, 8: 10, 9: 10, 10: 6, 11: 9, 12: 4, 13: 5, 14: 5, 18: 4}
    sent |= {19: 7, 20: 6, 21: 2, 22: 5, 23: 4, 32: 4, 33: 2, 37: 3, 44: 1}
    sent |= {15: 6, 16: 5, 42: 2, 47: 0}
    sent |= {17: 1, 24: 5, 25: 4, 26: 5, 27: 1, 28: 5, 36: 2}
    sent |= {76: 1, 77: 1, 78: 2, 79: 2, 88: 0, 89: 0, 90: 1, 91: 0, 92: 0}
    sent |= {48: 1, 49: 1, 68: 1, 69: 1, 74: 1}
    sent |= {29: 3, 30: 3, 31: 3, 50: 0, 51: 0, 55: 2, 57: 2, 64: 0}
    sent |= {20_001: 0, 20_002: 0}  # our client's
    sent |= {38: 3, 39: 2, 40: 2, 41: 3}
    sent |= {34: 2, 35: 5, 43: 2, 45: 1, 46: 0, 60: 2, 61: 0, 65: 0, 66: 2, 71: 0, 72: 0, 75: 0}

    assert {row.key: row.served[1] for row in apis.TABLE} == sent, (
        "raise a version here when a client of the tests sends it"
    )


@ROWS
def test_only_api_versions_is_answered_with_the_old_header_in_flexible_versions(row):
    """Response header v1 for flexible versions, except ApiVersions."""
    for version in range(row.served[0], row.served[1] + 1):
        api = apis.find_api(row.key << 16 | version)
        flexible = version >= table(row.response).flexible
        assert api.flexible_reply == (flexible and row.key != 18)
