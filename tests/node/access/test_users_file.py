"""Users from a file: what a line is, who may read it, and what becomes of the cluster's users."""

from __future__ import annotations

import asyncio

import pytest
from cryptography.fernet import Fernet

from tests.waiting import wait_on_loop
from trilogue.broker.access import passwords
from trilogue.broker.access.passwords import check_password, decrypt_password
from trilogue.broker.access.users import Users, make_user
from trilogue.broker.metadata_change import MetadataChange
from trilogue.meta.operations import DeleteSetting, PutSetting
from trilogue.node import users_file
from trilogue.node.users_file import (
    PREFIX,
    UsersFile,
    UsersFileError,
    forget_lines,
    parse_users,
    read_users,
)

KEY = Fernet.generate_key()


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "users"
    write(path, "alice:secret\n")
    return path


@pytest.fixture
def house(file):
    return House(file)


def write(path, text):
    path.write_text(text)
    path.chmod(0o600)


class House:
    """The users of a cluster, the settings of meta, and a file."""

    def __init__(self, path) -> None:
        self.path = path
        self.users = Users({})
        self.stored: dict[str, str] = {}
        self.writes = 0
        self.now_ms = 5
        self.file = self.open()

    def open(self, key: bytes = KEY) -> UsersFile:
        return UsersFile(
            self.path,
            self.users,
            stored=self.stored,
            write_metadata=self.write_metadata,
            signing_password=self.signing_password,
            key=key,
            now_ms=lambda: self.now_ms,
        )

    async def write_metadata(self, change: MetadataChange[None]) -> None:
        self.writes += 1
        for op in change.ops():
            if isinstance(op, PutSetting):
                self.stored[op.key] = op.value
            elif isinstance(op, DeleteSetting):
                del self.stored[op.key]
        change.apply()

    def signing_password(self, name: str) -> bytes | None:
        user = self.users.find(name)
        return decrypt_password(user.signing, KEY) if user is not None and user.signing else None

    def load(self, text: str | None = None) -> None:
        if text is not None:
            write(self.path, text)
        asyncio.run(self.file.load())

    def passwords(self) -> dict[str, bytes | None]:
        return {user.name: self.signing_password(user.name) for user in self.users}

    def put(self, name: str, password: bytes) -> None:
        user = make_user(name, password, 9, key=KEY)
        asyncio.run(self.write_metadata(self.users.plan_put(user)))


# -- the file


def test_a_line_is_a_user_and_a_password_that_may_have_colons_and_blanks():
    users = parse_users("# who\n\nalice:a b:c\nböb:\N{SNOWMAN}\r\n".encode(), "here")

    assert users == {"alice": b"a b:c", "böb": "\N{SNOWMAN}".encode()}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"alice", "user:password"),
        (b"alice:", "user:password"),
        (b":secret", "1 to 256"),
        (b"al ice:secret", "no blanks"),
        (b"x" * 257 + b":secret", "256"),
        (b"alice:" + b"x" * 1_025, "1024"),
        (b"alice:a\0b", "NUL"),
        (b"alice:1\nalice:2", "twice"),
        (b"\xff:secret", "UTF-8"),
    ],
)
def test_other_lines_are_refused_with_their_number_and_without_the_secret(content, message):
    with pytest.raises(UsersFileError, match=message) as refused:
        parse_users(b"# first\n" + content, "here")

    assert "here, line" in str(refused.value)
    assert "secret" not in str(refused.value)


def test_the_number_of_users_has_a_limit(monkeypatch):
    monkeypatch.setattr(users_file, "USERS_MAX", 1)

    with pytest.raises(UsersFileError, match="at most 1"):
        parse_users(b"a:1\nb:2", "here")


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602, 0o610])
def test_a_file_that_others_may_read_or_write_is_refused(file, mode):
    file.chmod(mode)

    with pytest.raises(UsersFileError, match="chmod 600"):
        read_users(file)


def test_a_file_that_does_not_exist_is_refused(house):
    house.path.unlink()

    with pytest.raises(UsersFileError, match="No such file"):
        house.load()


def test_a_file_that_is_too_large_is_refused(file, monkeypatch):
    monkeypatch.setattr(users_file, "FILE_SIZE_MAX", 5)

    with pytest.raises(UsersFileError, match="at most 5"):
        read_users(file)


# -- the users


def test_a_user_of_the_file_logs_in_by_every_method_and_nothing_in_clear_is_stored(house):
    house.load()

    (user,) = house.users
    assert house.passwords() == {"alice": b"secret"}
    assert set(user.scram) == {"SCRAM-SHA-256", "SCRAM-SHA-512"}
    assert user.password is not None
    assert check_password(b"secret", user.password, {})
    assert "secret" not in str(house.stored)


def test_lines_that_stay_as_they_are_change_nothing_after_a_restart(house):
    house.load("alice:secret\nbob:other\n")
    before = list(house.users)
    writes = house.writes

    house.file = house.open()
    house.load()

    assert list(house.users) == before
    assert house.writes == writes


def test_a_file_with_other_lines_changes_adds_and_deletes_users(house):
    house.load("alice:secret\nbob:other\n")

    house.load("alice:new secret\ncarol:third\n")

    assert house.passwords() == {"alice": b"new secret", "carol": b"third"}
    assert {key.removeprefix(PREFIX) for key in house.stored if key.startswith(PREFIX)} == {
        "alice",
        "carol",
    }


def test_later_change_of_a_user_precedes_an_unchanged_line(house):
    house.load("alice:secret\nbob:other\n")
    house.put("alice", b"changed")
    asyncio.run(house.write_metadata(house.users.plan_delete("bob", 7)))

    house.file = house.open()
    house.load()

    assert house.passwords() == {"alice": b"changed"}


def test_a_user_with_another_password_since_outlives_its_line(house):
    house.load()
    house.put("alice", b"changed")

    house.load("bob:other\n")

    assert house.passwords() == {"alice": b"changed", "bob": b"other"}
    assert PREFIX + "alice" not in house.stored


def test_the_users_of_a_file_that_is_no_longer_configured_stay(house):
    house.load()

    asyncio.run(forget_lines(house.stored, house.write_metadata))

    assert house.passwords() == {"alice": b"secret"}
    assert not [key for key in house.stored if key.startswith(PREFIX)]


def test_revoked_tokens_stay_revoked_for_a_user_that_returns(house):
    house.load()
    house.now_ms = 1_000
    house.load("bob:other\n")

    house.load("alice:again\n")

    assert house.users.tokens_from_ms("alice") == 1_000


@pytest.mark.parametrize("how", ["wrong", "open", "gone"])
def test_a_file_that_cannot_be_read_later_changes_nothing_and_is_logged_once(
    house, how, caplog, monkeypatch
):
    monkeypatch.setattr(users_file, "RELOAD_S", 0.001)
    monkeypatch.setattr(passwords, "COST", 2)
    house.load()

    def messages():
        return [each.message for each in caplog.records if each.name == users_file.__name__]

    async def follow():
        task = asyncio.create_task(house.file.run())
        if how == "gone":
            house.path.unlink()
        else:
            write(house.path, "bob:other\n" if how == "open" else "nonsense\n")
            house.path.chmod(0o644 if how == "open" else 0o600)
        await wait_on_loop(lambda: bool(messages()))
        house.path.unlink(missing_ok=True)
        write(house.path, "carol:third\n")
        await wait_on_loop(lambda: "carol" in house.passwords())
        task.cancel()

    asyncio.run(follow())

    assert house.passwords() == {"carol": b"third"}
    assert set(messages()) <= {"users_file.not_read"}
