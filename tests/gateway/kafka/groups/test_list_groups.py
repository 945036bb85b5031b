"""ListGroups: which groups, and what filters leave of them."""

from __future__ import annotations

import pytest

from tests.gateway.kafka.groups.test_classic import enter
from tests.gateway.kafka.groups.test_committed_offsets import commit
from tests.gateway.kafka.rig import Rig, versions
from tests.gateway.loop import on_loop
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.groups.group import CONSUMER
from trilogue.gateway.kafka.groups.list_groups import YIELD_EVERY
from trilogue.wire.kafka.groups.list_groups import ListGroupsRequest


async def groups(rig: Rig, version: int = 5, states=(), types=()) -> dict[str, tuple[str, ...]]:
    requested = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
    answer = await rig.peer().request(requested, version)
    assert answer.error_code == 0
    return {
        each.group_id: (each.protocol_type, each.group_state, each.group_type)
        for each in answer.groups
    }


async def some_groups(rig: Rig) -> None:
    rig.topic("t")
    peer = rig.peer()
    await peer.request(commit("t", 5, group="by-hand"), 6)
    await enter(peer, 9, group="members", protocol_type="connect")
    rig.broker.groups.records.mark_empty("modern", CONSUMER, "consumer")


ALL = {
    "by-hand": ("", "Empty", "classic"),
    "members": ("connect", "CompletingRebalance", "classic"),
    "modern": ("consumer", "Empty", "consumer"),
}


@pytest.mark.parametrize("version", versions(16))
@on_loop
async def test_every_version_lists_all_groups(version):
    async with Rig() as rig:
        empty = await groups(rig, version)
        await some_groups(rig)

        assert empty == {}
        assert await groups(rig, version) == {
            name: (kind, state if version >= 4 else "", type_ if version >= 5 else "")
            for name, (kind, state, type_) in ALL.items()
        }


@pytest.mark.parametrize(
    ("states", "names"),
    [
        (["Empty"], "by-hand modern"),
        (["empty"], "by-hand modern"),
        ([" EMPTY "], "by-hand modern"),
        (["CompletingRebalance", "Stable"], "members"),
        (["Bogus"], ""),
        ([""], ""),
    ],
)
@on_loop
async def test_states_are_filtered_without_regard_to_case(states, names):
    """KIP-518; the real server of 4.3.1."""
    async with Rig() as rig:
        await some_groups(rig)

        assert set(await groups(rig, states=states)) == set(names.split())


@pytest.mark.parametrize(
    ("types", "names"),
    [
        (["classic"], "by-hand members"),
        (["Consumer"], "modern"),
        (["consumer", "classic"], "by-hand members modern"),
        (["share"], ""),
    ],
)
@on_loop
async def test_config_resources_are_filtered_without_regard_to_case(types, names):
    """KIP-848."""
    async with Rig() as rig:
        await some_groups(rig)

        assert set(await groups(rig, types=types)) == set(names.split())


@on_loop
async def test_both_filters_must_fit():
    async with Rig() as rig:
        await some_groups(rig)

        assert set(await groups(rig, states=["Empty"], types=["classic"])) == {"by-hand"}


@on_loop
async def test_list_groups_without_describe_cluster_returns_describable_groups():
    async with Rig() as rig:
        await some_groups(rig)
        rig.rules.deny(Operation.DESCRIBE, ResourceKind.CLUSTER, "cluster")
        rig.rules.deny(Operation.DESCRIBE, ResourceKind.GROUP, "members")

        assert set(await groups(rig)) == {"by-hand", "modern"}


@on_loop
async def test_list_groups_with_describe_cluster_returns_all_groups():
    async with Rig() as rig:
        await some_groups(rig)
        rig.rules.deny(Operation.DESCRIBE, ResourceKind.GROUP, "members")

        assert set(await groups(rig)) == set(ALL)


@on_loop
async def test_more_groups_than_are_looked_at_in_one_go_are_all_listed():
    async with Rig() as rig:
        for number in range(2 * YIELD_EVERY + 1):
            rig.broker.groups.records.mark_empty(f"g{number}", CONSUMER, "consumer")

        assert len(await groups(rig)) == 2 * YIELD_EVERY + 1
