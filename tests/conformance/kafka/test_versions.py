"""Every API key in every version gets the recorded kind of answer, with and without login."""

from __future__ import annotations

import pytest
from tools.kafka_answers.versions import LISTENERS, Walk, names, read_recorded, walk_trilogue


@pytest.fixture(scope="module")
def walks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Walk]:
    return walk_trilogue(tmp_path_factory.mktemp("versions") / "data")


@pytest.mark.full
@pytest.mark.parametrize("listener", LISTENERS)
def test_each_version_is_answered_as_recorded(walks: dict[str, Walk], listener: str):
    """What has changed on purpose is recorded by `python -m tools.kafka_answers.versions`."""
    assert walks[listener] == read_recorded()["trilogue"][listener]


def test_all_keys_of_2_0_0_are_walked_over():
    assert set(range(43)) <= set(names())


@pytest.mark.parametrize("server", ["trilogue", "kafka 3.9.1", "kafka 4.3.1"])
@pytest.mark.parametrize("listener", LISTENERS)
def test_requests_between_brokers_close_the_connection(server: str, listener: str):
    walk = read_recorded()[server][listener]
    assert {answer for key in range(4, 8) for answer in walk[str(key)]} == {"closed"}
