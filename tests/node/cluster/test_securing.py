"""The secrets of a cluster: made once, joined by nodes that have the key, refused otherwise."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.postgres import PostgresServer
from trilogue.meta.operations import DeleteSetting
from trilogue.meta.postgres_editor import PostgresEditor
from trilogue.node.errors import StartError
from trilogue.node.secure.cluster import SECRETS_KEY, secure_cluster
from trilogue.node.secure.files import SecureFiles
from trilogue.node.settings.sources import load_settings

OWNERS = (1, 2)


@pytest.fixture
def url(postgres_server: PostgresServer) -> str:
    return postgres_server.emptied_database()


def secure(url: str, data: Path) -> str:
    """Return what the user reads, or the reason of the refusal."""
    settings = load_settings(
        environment={},
        assignments=[f"data={data}", f"cluster.url={url}"],
        is_complete=False,
    )
    try:
        return "\n".join(secure_cluster(settings, OWNERS))
    except StartError as refusal:
        return f"refused: {refusal}"


def authority(data: Path) -> bytes:
    return (data / "tls" / "ca.pem").read_bytes()


def test_of_nodes_that_secure_a_cluster_at_once_one_does(url: str, tmp_path: Path):
    folders = [tmp_path / "one", tmp_path / "two"]
    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(lambda data: secure(url, data), folders))

    (first,) = [data for data, each in zip(folders, outcomes, strict=True) if "copy" in each
                and "refused" not in each]  # fmt: skip
    (second,) = set(folders) - {first}
    assert "refused" in outcomes[folders.index(second)]
    assert not SecureFiles(second).is_secured
    shutil.copy(first / "cluster.secret", second)
    assert f"secured {second}" in secure(url, second)
    assert authority(first) == authority(second)
    for data in folders:
        assert load_settings(environment={}, assignments=[f"data={data}"]).switch(
            "access.authorize"
        )


def test_a_start_that_was_interrupted_is_repeated_with_the_same_secrets(url: str, tmp_path: Path):
    assert "secured" in secure(url, tmp_path / "one")
    before = authority(tmp_path / "one")
    shutil.rmtree(tmp_path / "one" / "tls")
    (tmp_path / "one" / "secure.toml").unlink()

    assert "secured" in secure(url, tmp_path / "one")
    assert authority(tmp_path / "one") == before


@pytest.mark.parametrize("key", [b"", b"nonsense", b"bm9uc2Vuc2Ugbm9uc2Vuc2Ugbm9uc2Vuc2Ugbm9uc2U="])
def test_another_key_is_refused_and_writes_no_file(url: str, tmp_path: Path, key: bytes):
    secure(url, tmp_path / "one")
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "cluster.secret").write_bytes(key)

    assert "cluster.secret" in secure(url, tmp_path / "two")
    assert [each.name for each in (tmp_path / "two").iterdir()] == ["cluster.secret"]


def test_an_administrator_of_another_origin_is_not_replaced(url: str, tmp_path: Path):
    secure(url, tmp_path / "one")
    with PostgresEditor.open(url) as editor:
        editor.write([DeleteSetting(SECRETS_KEY)])

    assert "refused: --secure: the cluster has a user admin" in secure(url, tmp_path / "two")
