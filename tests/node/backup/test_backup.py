"""Backups of a broker that runs, restored beside it: what is in them, and what ends them."""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator

import pulsar
import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.crash.faults import small_disk
from tests.node.backup.copies import FLUSHED, UNFLUSHED, WAIT_S, restored, send, take, texts
from tests.waiting import wait_until
from trilogue.client.tubemq import Message
from trilogue.client.tubemq.sync import TubeClient
from trilogue.node.backup.backup import BackupRun
from trilogue.node.backup.errors import BackupError
from trilogue.node.backup.record import record_key
from trilogue.node.backup.restore import choose_backup, find_backup, verify
from trilogue.node.backup.targets import BackupTarget, FolderStore, open_target
from trilogue.node.errors import StartError
from trilogue.testing import EmbeddedBroker, start_broker


class Killed(BaseException):
    """Nothing of the program runs after it."""


@pytest.fixture(params=["segments", "journal"])
def broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    with start_broker(settings=FLUSHED if request.param == "segments" else UNFLUSHED) as broker:
        yield broker


@pytest.fixture
def unflushed() -> Iterator[EmbeddedBroker]:
    with start_broker(settings=UNFLUSHED) as broker:
        yield broker


def test_a_backup_has_messages_and_positions_of_all_protocols(broker, tmp_path):
    send(broker, "t", "kafka 1", "kafka 2")
    client = pulsar.Client(broker.pulsar)
    reader = client.subscribe(
        "t-partition-0", "sub", initial_position=pulsar.InitialPosition.Earliest
    )
    client.create_producer("t-partition-0").send(b"pulsar")
    with TubeClient(broker.tubemq) as tubemq:
        tubemq.producer("t").send(Message("t", b"tubemq"))
    for _ in range(3):
        reader.acknowledge(reader.receive(WAIT_S * 1000))
    reader.close()
    client.close()
    group = {"bootstrap.servers": broker.kafka, "group.id": "g"}
    consumer = Consumer(group)
    consumer.commit(offsets=[TopicPartition("t", 0, 2)], asynchronous=False)
    consumer.close()

    take(broker, tmp_path / "b")
    send(broker, "t", "later")
    restored(tmp_path / "b", tmp_path / "d")

    with start_broker(tmp_path / "d") as copy:
        assert texts(copy) == ["kafka 1", "kafka 2", "pulsar", "tubemq"]
        consumer = Consumer({**group, "bootstrap.servers": copy.kafka})
        (position,) = consumer.committed([TopicPartition("t", 0)], WAIT_S)
        consumer.close()
        assert position.offset == 2
        client = pulsar.Client(copy.pulsar)
        again = client.subscribe("t-partition-0", "sub")
        assert again.receive(WAIT_S * 1000).data() == b"tubemq"
        client.close()
    assert texts(broker)[-1] == "later"


def test_a_restore_ends_at_a_time_within_the_journal(unflushed, tmp_path):
    send(unflushed, "t", "1")
    take(unflushed, tmp_path / "b")
    send(unflushed, "t", "2")
    time_ms = time.time_ns() // 1_000_000
    wait_until(lambda: time.time_ns() // 1_000_000 > time_ms, "the next millisecond")
    send(unflushed, "t", "3")
    take(unflushed, tmp_path / "b")

    restored(tmp_path / "b", tmp_path / "d", time_ms)

    with start_broker(tmp_path / "d") as copy:
        assert texts(copy) == ["1", "2"]
        send(copy, "t", "4")
        assert texts(copy) == ["1", "2", "4"]
    with pytest.raises(BackupError, match="the oldest backup is of a later time"):
        restored(tmp_path / "b", tmp_path / "e", 1)
    assert not (tmp_path / "e").exists()


@pytest.mark.parametrize("stored", [0, 1, 2])
def test_a_backup_that_was_killed_is_none(unflushed, tmp_path, monkeypatch, stored):
    send(unflushed, "t", "1")
    whole = take(unflushed, tmp_path / "b").record
    put, calls = FolderStore.put, []

    def put_until_killed(self, key, data):
        if len(calls) == stored:
            (tmp_path / "b" / f"{key}.unfinished").parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "b" / f"{key}.unfinished").write_bytes(b"half")
            raise Killed
        calls.append(key)
        put(self, key, data)

    monkeypatch.setattr(FolderStore, "put", put_until_killed)
    with pytest.raises(Killed):
        take(unflushed, tmp_path / "b")
    monkeypatch.undo()

    target = open_target(str(tmp_path / "b"))
    assert [record.backup_id for record in target.records()] == [whole.backup_id]
    send(unflushed, "t", "2")
    take(unflushed, tmp_path / "b", keep=1)
    left = {path.parent.name for path in (tmp_path / "b" / "backups").rglob("*") if path.is_file()}
    assert left == {record.backup_id for record in target.records()}
    restored(tmp_path / "b", tmp_path / "d")
    with start_broker(tmp_path / "d") as copy:
        assert texts(copy) == ["1", "2"]


def test_a_restore_that_was_killed_is_not_served_and_begins_again(unflushed, tmp_path, monkeypatch):
    send(unflushed, "t", "1")
    take(unflushed, tmp_path / "b")
    pieces, calls = BackupTarget.pieces, []

    def pieces_until_killed(self, key, size):
        if "backup.json" not in key:
            calls.append(key)
            if len(calls) == 2:
                raise Killed
        return pieces(self, key, size)

    monkeypatch.setattr(BackupTarget, "pieces", pieces_until_killed)
    with pytest.raises(Killed):
        restored(tmp_path / "b", tmp_path / "d")
    monkeypatch.undo()

    with (
        pytest.raises(StartError, match="has not ended: run it again"),
        start_broker(tmp_path / "d"),
    ):
        pass
    restored(tmp_path / "b", tmp_path / "d")
    with start_broker(tmp_path / "d") as copy:
        assert texts(copy) == ["1"]


def test_keys_and_certificates_are_in_a_backup_for_their_owner_only(unflushed, tmp_path):
    send(unflushed, "t", "1")
    (unflushed.data / "tls").mkdir(mode=0o700)
    for name in ("access.key", "tls/node.key"):
        (unflushed.data / name).write_text(name)
    (unflushed.data / "link").symlink_to("/etc/passwd")
    take(unflushed, tmp_path / "b")
    restored(tmp_path / "b", tmp_path / "d")

    for name in ("access.key", "tls/node.key"):
        assert (tmp_path / "d" / name).read_text() == name
        assert (tmp_path / "d" / name).stat().st_mode & 0o777 == 0o600
    modes = [path.stat().st_mode & 0o77 for path in (tmp_path / "b").rglob("*")]
    assert set(modes) == {0}
    assert not (tmp_path / "d" / "link").exists()


def test_a_restore_leaves_a_directory_with_files_alone(unflushed, tmp_path):
    send(unflushed, "t", "1")
    take(unflushed, tmp_path / "b")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "precious").write_text("mine")

    with pytest.raises(BackupError, match="is not empty: give a new directory"):
        restored(tmp_path / "b", tmp_path / "d")

    assert [each.name for each in (tmp_path / "d").iterdir()] == ["precious"]


def test_damage_of_a_backup_is_found(unflushed, tmp_path):
    send(unflushed, "t", "1")
    record = take(unflushed, tmp_path / "b").record
    target = open_target(str(tmp_path / "b"))
    journal = next(each for each in record.files if each.path.endswith(".journal"))
    path = tmp_path / "b" / journal.key
    content = bytearray(path.read_bytes())
    content[5000] ^= 1
    path.write_bytes(content)

    assert verify(target, record) == [f"{target.name}/{journal.key} does not have its checksum"]
    with pytest.raises(BackupError, match="it is damaged; choose another backup"):
        restored(tmp_path / "b", tmp_path / "d")
    path.write_bytes(content[:-1])
    assert "choose another backup" in verify(target, record)[0]
    path.unlink()
    assert "there is no" in verify(target, record)[0]
    record_path = tmp_path / "b" / record_key(record.backup_id)
    record_path.write_bytes(record_path.read_bytes().replace(b'"size":', b'"size": ', 1))
    with pytest.raises(BackupError, match="checksum that is in it"):
        target.records()


def test_a_record_names_no_file_outside_of_the_directory(unflushed, tmp_path):
    from msgspec.structs import replace

    from trilogue.node.backup.record import decode_record, encode_record

    send(unflushed, "t", "1")
    record = take(unflushed, tmp_path / "b").record
    for path in ("/etc/passwd", "../x", "a/../../x", "a//b", ""):
        files = [replace(record.files[0], path=path)]
        with pytest.raises(BackupError, match="outside of the data directory"):
            decode_record(encode_record(replace(record, files=files)), "key")


def test_two_servers_do_not_share_a_target(unflushed, tmp_path):
    take(unflushed, tmp_path / "b")
    with start_broker() as other, pytest.raises(BackupError, match="backups of another server"):
        take(other, tmp_path / "b")
    assert len(open_target(str(tmp_path / "b")).records()) == 1


def test_a_second_backup_to_a_folder_waits_for_none(unflushed, tmp_path):
    target = open_target(str(tmp_path / "b"))
    target.lock()
    try:
        with pytest.raises(BackupError, match=r"another backup to .* is at work"):
            take(unflushed, tmp_path / "b")
    finally:
        target.close()
    take(unflushed, tmp_path / "b")


def test_a_place_that_cannot_be_is_named_with_advice(unflushed, tmp_path):
    with pytest.raises(BackupError, match="make the folder, or mount it"):
        take(unflushed, tmp_path / "missing" / "b")
    with pytest.raises(BackupError, match="within the data directory"):
        take(unflushed, unflushed.data / "b")
    (tmp_path / "c").mkdir()
    with pytest.raises(BackupError, match="holds no data of a server: --data DIR"):
        BackupRun(tmp_path / "c", open_target(str(tmp_path / "b"))).run()
    (tmp_path / "c" / "cluster").write_text("")
    with pytest.raises(BackupError, match="pg_dump"):
        BackupRun(tmp_path / "c", open_target(str(tmp_path / "b"))).run()
    with pytest.raises(BackupError, match="neither s3://BUCKET/PREFIX"):
        open_target("gs://bucket/prefix")
    with pytest.raises(BackupError, match="no whole backup 2026"):
        find_backup([], "2026")
    with pytest.raises(BackupError, match="no whole backup there"):
        choose_backup([], None)


def test_a_full_disk_ends_a_backup_with_advice_and_leaves_no_half_one(unflushed, tmp_path):
    send(unflushed, "t", *("x" * 100_000 for _ in range(30)))
    with small_disk(tmp_path / "disk", 2) as disk:
        with pytest.raises(BackupError, match=r"No space left on device.*free space there"):
            take(unflushed, disk / "b")
        assert open_target(str(disk / "b")).records() == []
    assert len(texts(unflushed)) == 30


def test_a_full_disk_ends_a_restore_before_it_begins(unflushed, tmp_path):
    send(unflushed, "t", *("x" * 100_000 for _ in range(30)))
    take(unflushed, tmp_path / "b")
    with (
        small_disk(tmp_path / "disk", 2) as disk,
        pytest.raises(BackupError, match=r"bytes, and .* are free in"),
    ):
        restored(tmp_path / "b", disk)


def test_files_that_the_command_may_not_read_are_named(unflushed, tmp_path, monkeypatch):
    def refuse(self, path, **_):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr("trilogue.log.files.OsFileSystem.open_read", refuse)
    with pytest.raises(BackupError, match=r"Permission denied: .*run the command as the user"):
        take(unflushed, tmp_path / "b")
