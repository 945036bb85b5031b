"""The stores keep what the port promises; what they answer wrongly becomes one of its errors."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.s3 import BUCKET, KEYS, S3, MemoryObjects, Proxy, options
from trilogue.log.errors import ObjectDenied, ObjectExists, ObjectMissing, StorageUnavailable
from trilogue.log.objects import obstore_store
from trilogue.log.objects.objects import ListedObject, ObjectStore
from trilogue.log.objects.obstore_store import (
    S3ObjectStore,
    StoreOptions,
    StoreOptionsError,
    open_store,
)

DATA = Random(7).randbytes(300_000)
GENEROUS_S = 60.0  # of a request, where a test is not about time


@pytest.fixture(params=["memory", "directory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "memory":
        return MemoryObjects()
    if request.param == "directory":
        return open_store(StoreOptions(f"file://{tmp_path}"))
    server: S3 = request.getfixturevalue("s3")
    return open_store(options(server.port, tmp_path.name))


# -- what every store promises -----------------------------------------------------------------


def test_object_is_read_by_ranges(store: ObjectStore):
    store.put("a/one", memoryview(DATA))

    assert bytes(store.read("a/one", 0, len(DATA))) == DATA
    assert bytes(store.read("a/one", 1_000, 5)) == DATA[1_000:1_005]
    assert bytes(store.read("a/one", len(DATA) - 3, 10)) == DATA[-3:]
    assert store.size("a/one") == len(DATA)


def test_nothing_is_overwritten(store: ObjectStore):
    store.put("a/one", memoryview(DATA))

    with pytest.raises(ObjectExists):
        store.put("a/one", memoryview(b"something else"))

    assert bytes(store.read("a/one", 0, len(DATA))) == DATA
    assert [each.key for each in store.list("a")] == ["a/one"]


def test_unknown_object_raises_object_missing(store: ObjectStore):
    with pytest.raises(ObjectMissing):
        store.read("a/none", 0, 1)
    with pytest.raises(ObjectMissing):
        store.size("a/none")


def test_deleted_object_is_missing_and_delete_is_idempotent(store: ObjectStore):
    store.put("a/one", memoryview(DATA))

    store.delete("a/one")
    store.delete("a/one")

    with pytest.raises(ObjectMissing):
        store.size("a/one")
    store.put("a/one", memoryview(DATA))


def test_a_folder_is_listed_and_its_neighbours_are_not(store: ObjectStore):
    for key in ("a/b/2", "a/b/1", "a/bc/3", "a/4"):
        store.put(key, memoryview(b"12345"))

    assert sorted(store.list("a/b")) == [ListedObject("a/b/1", 5), ListedObject("a/b/2", 5)]
    assert list(store.list("nothing")) == []


# -- a directory -------------------------------------------------------------------------------


def test_a_directory_that_is_not_there_may_come_later(tmp_path: Path):
    root = tmp_path / "mounted later"
    store = open_store(StoreOptions(f"file://{tmp_path}/mounted%20later"))
    with pytest.raises(StorageUnavailable):
        store.put("one", memoryview(DATA))

    root.mkdir()
    store.put("one", memoryview(DATA))

    assert (root / "one").read_bytes() == DATA


def test_a_directory_that_goes_is_unavailable_and_not_empty(tmp_path: Path):
    root = tmp_path / "root"
    root.mkdir()
    store = open_store(StoreOptions(f"file://{root}"))
    store.put("one", memoryview(DATA))
    root.rename(tmp_path / "gone")

    for call in CALLS.values():
        with pytest.raises(StorageUnavailable) as problem:
            call(store)
        assert problem.type is StorageUnavailable

    assert not root.exists()


def test_in_a_directory_a_name_stands_for_synced_bytes(tmp_path: Path):
    """Otherwise a power cut could leave an empty file under the name of a segment in meta."""
    log: list[str] = []

    class Watched(obstore_store.OsFileSystem):
        def open(self, path: Path, **how: bool):
            log.append(f"open {path.name} {sorted(each.name for each in path.parent.iterdir())}")
            return super().open(path, **how)

        def sync_directory(self, path: Path) -> None:
            log.append(f"sync {path.relative_to(tmp_path)}")
            super().sync_directory(path)

    obstore_store.DirectoryStore(tmp_path, Watched()).put("a/b/one", memoryview(DATA))

    assert log == [
        "open one.uploading ['one.uploading']",
        "sync a/b",
        "sync a",
        "sync .",
    ]


# -- S3 that misbehaves ------------------------------------------------------------------------


@pytest.fixture
def behind(proxy: Proxy, tmp_path: Path) -> S3ObjectStore:
    return S3ObjectStore(options(proxy.port, tmp_path.name), request_s=GENEROUS_S)


Call = Callable[[S3ObjectStore], object]
CALLS: dict[str, Call] = {
    "put": lambda store: store.put("two", memoryview(DATA)),
    "read": lambda store: store.read("one", 0, len(DATA)),
    "size": lambda store: store.size("one"),
    "delete": lambda store: store.delete("one"),
    "list": lambda store: list(store.list("")),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("fault", ["reset", "lose", 500, 503, 429])
def test_transient_fault_raises_storage_unavailable(
    behind: S3ObjectStore, proxy: Proxy, call: Call, fault: str | int
):
    behind.put("one", memoryview(DATA))
    proxy.fault = lambda _method, _path: fault

    with pytest.raises(StorageUnavailable) as problem:
        call(behind)

    assert problem.type is StorageUnavailable
    assert pickle.loads(pickle.dumps(problem.value)).args == problem.value.args


@pytest.mark.parametrize("fault", ["hang", "slow"])
def test_a_server_that_hangs_costs_the_time_that_was_set(
    behind: S3ObjectStore, proxy: Proxy, tmp_path: Path, fault: str
):
    behind.put("one", memoryview(DATA))
    proxy.fault = lambda _method, _path: fault
    impatient = S3ObjectStore(options(proxy.port, tmp_path.name), request_s=0.5)
    began = time.monotonic()

    with pytest.raises(StorageUnavailable) as problem:
        impatient.read("one", 0, len(DATA))

    assert problem.type is StorageUnavailable
    assert 0.4 < time.monotonic() - began < 30  # the default of the client


def test_half_an_answer_is_none(behind: S3ObjectStore, proxy: Proxy):
    behind.put("one", memoryview(DATA))
    proxy.fault = lambda _method, _path: "cut"

    with pytest.raises(StorageUnavailable):
        behind.read("one", 0, len(DATA))


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("status", [401, 403])
def test_forbidden_request_raises_object_denied(
    behind: S3ObjectStore, proxy: Proxy, call: Call, status: int
):
    behind.put("one", memoryview(DATA))
    proxy.fault = lambda _method, _path: status

    with pytest.raises(ObjectDenied):
        call(behind)


def test_a_bucket_that_is_not_there_is_missing(s3: S3):
    store = open_store(
        StoreOptions("s3://other-bucket", f"http://127.0.0.1:{s3.port}", "us-east-1")
    )

    with pytest.raises(ObjectMissing, match="NoSuchBucket"):
        store.put("one", memoryview(DATA))


def test_a_store_that_does_not_listen_is_unavailable():
    with pytest.raises(StorageUnavailable):
        open_store(options(1, "")).read("one", 0, 1)


def test_errors_contain_no_response_body(behind: S3ObjectStore, proxy: Proxy):
    """Some servers send keys and signatures back."""
    proxy.fault = lambda _method, _path: 400

    with pytest.raises(StorageUnavailable) as problem:
        behind.read("one", 0, 1)

    assert "400 Bad Request (Broken)" in str(problem.value)
    assert "<" not in str(problem.value)
    assert all(secret not in str(problem.value) for secret in KEYS.values())


# -- keys and URLs -----------------------------------------------------------------------------


def test_keys_come_from_a_file_that_only_its_owner_can_read(
    s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in KEYS:
        monkeypatch.delenv(name)
    keys = tmp_path / "keys"
    keys.write_text("[default]\naws_access_key_id = me\naws_secret_access_key = hidden%words\n")
    where = options(s3.port, tmp_path.name)
    how = StoreOptions(where.url, where.endpoint, where.region, str(keys))

    keys.chmod(0o644)
    with pytest.raises(ObjectDenied, match="chmod 600"):
        open_store(how).put("one", memoryview(DATA))
    keys.chmod(0o600)
    open_store(how).put("one", memoryview(DATA))

    assert "hidden" not in repr(how) + repr(open_store(how))
    keys.write_text("[default]\nno lines of a file are told hidden%words\n")
    with pytest.raises(ObjectDenied) as problem:
        open_store(how).put("two", memoryview(DATA))
    assert "hidden" not in str(problem.value)


@pytest.mark.parametrize(
    "wrong",
    [
        StoreOptions(""),
        StoreOptions("bucket/prefix"),
        StoreOptions("gs://bucket"),
        StoreOptions("s3://"),
        StoreOptions("s3://Bucket"),
        StoreOptions("s3://bucket?x=y"),
        StoreOptions("s3://key:secret@bucket"),
        StoreOptions("file://relative/path"),
        StoreOptions("file:///path", endpoint="http://host"),
        StoreOptions("s3://bucket", endpoint="host:9000"),
        StoreOptions("s3://bucket", endpoint="http://key:secret@host"),
    ],
)
def test_invalid_store_options_are_refused_without_secrets(wrong: StoreOptions):
    with pytest.raises(StoreOptionsError) as problem:
        open_store(wrong)

    assert "secret" not in str(problem.value)


def test_without_the_package_the_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)

    with pytest.raises(StoreOptionsError, match=r"trilogue\[s3\]"):
        open_store(StoreOptions(f"s3://{BUCKET}"))
