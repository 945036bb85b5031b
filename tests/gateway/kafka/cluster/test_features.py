"""UpdateFeatures: the levels of the program cannot change."""

from __future__ import annotations

import pytest

from tests.gateway.kafka.rig import Rig, versions
from tests.gateway.loop import on_loop
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.wire.kafka.cluster.features import FeatureUpdateKey, UpdateFeaturesRequest


def to(**levels: int) -> UpdateFeaturesRequest:
    return UpdateFeaturesRequest(
        feature_updates=[
            FeatureUpdateKey(feature=name.replace("_", "."), max_version_level=level)
            for name, level in levels.items()
        ]
    )


@pytest.mark.parametrize("version", versions(57))
@on_loop
async def test_update_to_the_current_feature_level_succeeds(version):
    """As Kafka 4.3.1; v2+ has no result per feature."""
    async with Rig() as rig:
        answer = await rig.peer().request(to(group_version=1), version)

        assert (answer.error_code, answer.error_message) == (0, None)
        reported = [(each.feature, each.error_code) for each in answer.results]
        assert reported == ([("group.version", 0)] if version < 2 else [])


@pytest.mark.parametrize("version", versions(57))
@pytest.mark.parametrize(
    "levels",
    [{"group_version": 0}, {"group_version": 2}, {"group_version": -1}, {"metadata_version": 21},
     {"group_version": 1, "nope": 1}],
)  # fmt: skip
@on_loop
async def test_another_level_or_feature_spoils_all(levels, version):
    """INVALID_UPDATE_VERSION, since Kafka 4.0 for the whole request."""
    async with Rig() as rig:
        answer = await rig.peer().request(to(**levels), version)

        assert (answer.error_code, answer.results) == (95, [])
        assert answer.error_message


@on_loop
async def test_nothing_to_change_is_no_error():
    async with Rig() as rig:
        assert (await rig.peer().request(to(), 1)).error_code == 0


@on_loop
async def test_feature_update_without_permission_is_denied():
    async with Rig() as rig:
        rig.rules.deny(Operation.ALTER, ResourceKind.CLUSTER, "cluster")

        assert (await rig.peer().request(to(group_version=1), 1)).error_code == 31
