"""Changes to a cluster's metadata beside its nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.postgres import CuttingProxy, PostgresServer
from trilogue.log.errors import StorageFailed
from trilogue.meta.errors import PreconditionFailed
from trilogue.meta.operations import Fence, PutSetting, SettingIs
from trilogue.meta.postgres import PostgresMeta
from trilogue.meta.postgres_editor import PostgresEditor
from trilogue.meta.postgres_opening import WrongCluster


@pytest.fixture
def url(postgres_server: PostgresServer) -> str:
    return postgres_server.emptied_database()


@pytest.fixture
def proxy(postgres_server: PostgresServer) -> Iterator[CuttingProxy]:
    made = CuttingProxy(postgres_server.port)
    yield made
    made.close()


def test_a_node_follows_what_an_editor_changes_and_is_not_fenced(url: str):
    with PostgresEditor.open(url, owners=(1, 2)) as editor:
        editor.write([PutSetting("before", "1")], [SettingIs("before", None)])
        meta = PostgresMeta.open(url, node_id=1, home=b"home", owners=(1, 2))
        try:

            async def run() -> None:
                editor.write([PutSetting("beside", "2")])
                await meta.catch_up()
                assert meta.state.settings == {"before": "1", "beside": "2"}
                fence = Fence(1, meta.state.node_epoch)
                await meta.write([PutSetting("of a node", "3")], (), fence)

            asyncio.run(run())
            editor.refresh()
            assert editor.state.settings == meta.state.settings
            assert set(editor.state.nodes) == {1, 2}
        finally:
            meta.close()


def test_a_refused_change_leaves_nothing_and_the_next_one_is_made(url: str):
    with PostgresEditor.open(url, owners=(1,)) as editor:
        editor.write([PutSetting("key", "1")])
        with pytest.raises(PreconditionFailed):
            editor.write([PutSetting("key", "2")], [SettingIs("key", None)])
        editor.write([PutSetting("other", "3")], [SettingIs("key", "1")])
        assert editor.state.settings == {"key": "1", "other": "3"}


@pytest.mark.parametrize("cut", ["before", "after"])
def test_a_commit_without_answer_is_reported_as_one_that_may_have_been_made(
    url: str, postgres_server: PostgresServer, proxy: CuttingProxy, cut: str
):
    through = url.replace(str(postgres_server.port), str(proxy.port))
    with PostgresEditor.open(through, owners=(1,)) as editor:
        proxy.cut = cut
        with pytest.raises(StorageFailed, match="may have been made"):
            editor.write([PutSetting("key", "1")])
    rows = postgres_server.run("SELECT value FROM trilogue.settings", url)
    assert rows == ([("1",)] if cut == "after" else [])


def test_an_empty_database_and_another_cluster_are_refused(url: str):
    with pytest.raises(WrongCluster, match="no cluster"):
        PostgresEditor.open(url)
    with PostgresEditor.open(url, owners=(1,)) as editor:
        known = editor.state.cluster_id
    PostgresEditor.open(url, cluster_id=known).close()
    with pytest.raises(WrongCluster, match="the folder belongs to"):
        PostgresEditor.open(url, cluster_id=b"x" * 16)
