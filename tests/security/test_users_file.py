"""A file of users that a running server follows: logins, open sessions, and what is on disk."""

from __future__ import annotations

import pytest

from tests.brokers import make_topic
from tests.server import start_server
from tests.waiting import wait_until
from trilogue.client.errors import ClientError
from trilogue.client.tubemq import Message
from trilogue.client.tubemq.errors import TubeError
from trilogue.client.tubemq.sync import TubeClient

PASSWORDS = {"alice": "wonderland", "bob": "the builder"}
OTHER = "looking-glass"
KEYS = ["access.users-file", "tubemq.users"]


def write(file, passwords):
    file.touch(0o600)
    file.write_text("".join(f"{user}:{password}\n" for user, password in passwords.items()))


def client(server, user, password):
    return TubeClient(server.doors["tubemq-master"], user=user, password=password)


def is_let_in(server, user, password):
    code = 200
    with client(server, user, password) as tube:
        try:
            tube.producer("followed").close()
        except TubeError as refused:
            code = refused.err_code
    assert code in {200, 415}
    return code == 200


def names_in_files(folder, words):
    """Return the words that any file has in clear."""
    contents = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    return [word for word in words if any(word.encode() in content for content in contents)]


@pytest.mark.parametrize("key", KEYS)
def test_users_follow_their_file_and_no_password_is_on_disk_in_clear(tmp_path, key):
    file, data = tmp_path / "users", tmp_path / "data"
    write(file, PASSWORDS)
    settings = {"access.authenticate": "true", key: file}
    with start_server(data, settings=settings) as server:
        make_topic(server.kafka, "followed", 1)
        with client(server, "alice", PASSWORDS["alice"]) as tube:
            producer = tube.producer("followed")

            write(file, {"alice": OTHER})

            def is_out():
                try:
                    producer.send(Message("followed", b"x"))
                except TubeError as refused:
                    return refused.err_code == 415
                except ClientError:
                    return False
                return False

            wait_until(is_out)
        assert is_let_in(server, "alice", OTHER)
        assert not is_let_in(server, "alice", PASSWORDS["alice"])
        wait_until(lambda: not is_let_in(server, "bob", PASSWORDS["bob"]))
        output = server.log_file.read_text()
    assert ("settings.deprecated" in output) == (key == "tubemq.users")
    secrets = [*PASSWORDS.values(), OTHER]
    assert names_in_files(data, secrets) == []
    assert not [secret for secret in secrets if secret in output]

    file.unlink()
    with start_server(data, settings={"access.authenticate": "true"}) as server:
        assert is_let_in(server, "alice", OTHER)
