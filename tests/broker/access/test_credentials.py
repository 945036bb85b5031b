"""UserTable from a file: what a line is, who may read it, and that it may change."""

from __future__ import annotations

import logging
import os

import pytest

from trilogue.broker.access import credentials
from trilogue.broker.access.authorizer import Principal
from trilogue.broker.access.credentials import (
    RELOAD_INTERVAL_S,
    CredentialsError,
    UserFile,
    UserTable,
    parse_users,
    read_users,
)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "users"
    write(path, "alice:secret\n")
    return path


def write(path, text):
    path.write_text(text)
    path.chmod(0o600)


def test_a_line_is_a_user_and_a_password_that_may_have_colons_and_blanks():
    users = parse_users("# who\n\nalice:a b:c\nböb:\N{SNOWMAN}\r\n".encode(), "here")

    assert users == {"alice": b"a b:c", "böb": "\N{SNOWMAN}".encode()}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"alice", "user:password"),
        (b"alice:", "user:password"),
        (b":secret", "a name has"),
        (b"al ice:secret", "no blanks"),
        (b"x" * 129 + b":secret", "128"),
        (b"alice:" + b"x" * 1_025, "1024"),
        (b"alice:1\nalice:2", "twice"),
        (b"\xff:secret", "UTF-8"),
    ],
)
def test_other_lines_are_refused_with_their_number_and_without_the_secret(content, message):
    with pytest.raises(CredentialsError, match=message) as refused:
        parse_users(b"# first\n" + content, "here")

    assert "here, line" in str(refused.value)
    assert "secret" not in str(refused.value)


def test_there_are_only_so_many_users(monkeypatch):
    monkeypatch.setattr(credentials, "USERS_MAX", 1)

    with pytest.raises(CredentialsError, match="at most 1"):
        parse_users(b"a:1\nb:2", "here")


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602, 0o610])
def test_a_file_that_others_may_touch_is_refused(file, mode):
    file.chmod(mode)

    with pytest.raises(CredentialsError, match="chmod 600"):
        read_users(file)


def test_a_file_that_is_not_there_is_refused_at_the_start(tmp_path):
    with pytest.raises(CredentialsError, match="No such file"):
        UserFile(tmp_path / "none", lambda: 0.0)


def test_a_file_that_is_too_large_is_refused(file, monkeypatch):
    monkeypatch.setattr(credentials, "FILE_SIZE_MAX", 5)

    with pytest.raises(CredentialsError, match="at most 5"):
        read_users(file)


def test_a_file_is_read_again_when_it_changes_but_looked_at_once_a_second(file):
    now_s = 0.0
    users = UserFile(file, lambda: now_s)
    assert users.secret("alice") == b"secret"
    assert users.principal("alice") == UserTable().principal("alice") == Principal("User", "alice")

    write(file, "bob:other\n")
    os.utime(file, ns=(1, 1))
    assert users.secret("alice") == b"secret"
    now_s += RELOAD_INTERVAL_S
    assert users.secret("alice") is None
    assert users.secret("bob") == b"other"


@pytest.mark.parametrize("how", ["wrong", "open", "gone"])
def test_one_that_cannot_be_read_then_changes_nothing_and_is_said(file, how, caplog):
    now_s = 0.0
    users = UserFile(file, lambda: now_s)
    if how == "gone":
        file.unlink()
    else:
        write(file, "bob:other\n" if how == "open" else "nonsense\n")
        file.chmod(0o644 if how == "open" else 0o600)

    now_s += RELOAD_INTERVAL_S
    with caplog.at_level(logging.ERROR):
        assert users.secret("alice") == b"secret"
    assert [record.message for record in caplog.records] == ["credentials.not_read"]
