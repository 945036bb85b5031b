"""Users, grants and rules together: who may write and read a topic of other administrators."""

from __future__ import annotations

import pytest

from tests.gateway.http.admin_client import Admin
from tests.gateway.http.tubemq.web_api_client import Web
from tests.server import start_server
from trilogue.client.tubemq import Message
from trilogue.client.tubemq.errors import TubeError
from trilogue.client.tubemq.sync import TubeClient

HOME = "namespaces/public/default/permissions"


@pytest.fixture(scope="module")
def locked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("locked")
    users = folder / "users"
    users.write_text("alice:wonder\nbob:builder\n")
    users.chmod(0o600)
    settings = {
        "tubemq.users": users,
        "tubemq.authenticate": "both",
        "tubemq.authorize": "both",
        "tubemq.check-visit-tokens": "true",
    }
    with (
        start_server(folder / "data", settings=settings) as server,
        Web(server, folder / "data") as web,
        Admin(server) as admin,
    ):
        web.topic("planes")
        web.topic("other/home/ships")
        admin.do("POST", f"{HOME}/alice", ["produce", "consume"])
        admin.do("POST", f"{HOME}/bob", ["consume"])
        yield server


def client(server, user, password):
    return TubeClient(server.doors["tubemq-master"], user=user, password=password)


def write(server, user, password, body):
    with client(server, user, password) as tube, tube.producer("planes") as producer:
        producer.send(Message("planes", body))


def read(server, user, password, group):
    with (
        client(server, user, password) as tube,
        tube.consumer({"planes": set()}, group=group) as consumer,
    ):
        batch = consumer.get(10)
        consumer.confirm(batch)
        return {message.body for message in batch}


def test_user_with_both_grants_writes_and_reads(locked):
    write(locked, "alice", "wonder", b"one")

    assert b"one" in read(locked, "alice", "wonder", "alices")


def test_user_with_a_read_grant_cannot_write(locked):
    """The master leaves the topic out, so the client itself reports 444 (no such topic)."""
    write(locked, "alice", "wonder", b"two")
    with pytest.raises(TubeError) as refused:
        write(locked, "bob", "builder", b"bad")

    assert refused.value.code in {415, 444}
    found = read(locked, "bob", "builder", "bobs")
    assert b"two" in found
    assert b"bad" not in found


def test_topic_without_grants_is_denied(locked):
    with (
        client(locked, "alice", "wonder") as tube,
        pytest.raises(TubeError, match="415"),
        tube.consumer({"other/home/ships": set()}, group="alices") as consumer,
    ):
        consumer.get(2)
