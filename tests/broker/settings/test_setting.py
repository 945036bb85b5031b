"""One row of a table of settings: what it accepts, and which source wins."""

from __future__ import annotations

import pytest

from trilogue.broker.errors import InvalidSetting
from trilogue.broker.settings.broker_table import BROKER
from trilogue.broker.settings.setting import Setting, list_values
from trilogue.broker.settings.topic_table import TABLE as TOPICS
from trilogue.broker.settings.values import InvalidValue, Kind


@pytest.mark.parametrize(
    ("key", "text", "reason"),
    [
        ("retention.ms", "-2", f"retention.ms: an integer from -1 to {2**63 - 1} is needed"),
        ("retention.ms", "soon", f"retention.ms: an integer from -1 to {2**63 - 1} is needed"),
        ("flush.messages", "0", f"flush.messages: an integer from 1 to {2**63 - 1} is needed"),
        ("flush", "never", "flush: one of commit, interval is needed"),
        ("preallocate", "1", "preallocate: true or false is needed"),
        (
            "min.cleanable.dirty.ratio",
            "2",
            "min.cleanable.dirty.ratio: a number from 0 to 1 is needed",
        ),
        (
            "compression.gzip.level",
            "0",
            "compression.gzip.level: -1 or a level from 1 to 9 is needed",
        ),
        (
            "remote.storage.enable",
            "true",
            "remote.storage.enable: only 'false' is served: there is no second tier of storage",
        ),
    ],
)
def test_a_refusal_names_the_setting_and_what_it_accepts(key, text, reason):
    with pytest.raises(InvalidSetting) as refusal:
        TOPICS[key].check(text)

    assert str(refusal.value) == reason


def test_a_read_only_row_of_a_broker_takes_no_value():
    with pytest.raises(InvalidSetting) as refusal:
        BROKER["node.id"].check("1")

    assert str(refusal.value).startswith("node.id is not changed while the server runs: ")


@pytest.mark.parametrize(
    ("text", "reason"),
    [("", "must not be empty"), ("1KiB", "must be 2KiB to 4KiB"), ("5KiB", "must be 2KiB to 4KiB")],
)
def test_bounds_of_a_node_setting_are_reported_in_its_unit(text, reason):
    row = Setting("a.size", Kind.SIZE, "3KiB", "A size.", minimum=2 << 10, maximum=4 << 10)

    with pytest.raises(InvalidValue, match=reason):
        row.parse(text)
    assert row.parse("2KiB") == 2 << 10


def test_the_first_layer_that_has_a_value_is_the_effective_one():
    layers = (("topic", {"a": "1"}), ("broker", {"a": "2", "b": "3"}))

    assert list_values("a", layers) == [("topic", "1"), ("broker", "2")]
    assert list_values("b", layers) == [("broker", "3")]
    assert list_values("c", layers) == []
