"""Users, grants and rules together: who may write and read a topic that others administrate."""

from __future__ import annotations

import pytest

from tests.gateway_http.asking import Admin
from tests.gateway_http.tubemq_web import Web
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


def test_who_was_granted_both_writes_and_reads(locked):
    with client(locked, "alice", "wonder") as tube:
        with tube.producer("planes") as producer:
            producer.send(Message("planes", b"one"))
        with tube.consumer("alices", {"planes": set()}) as consumer:
            batch = consumer.get(10)
            consumer.confirm(batch)

    assert [message.body for message in batch] == [b"one"]


def test_who_was_granted_to_read_does_not_write(locked):
    with client(locked, "bob", "builder") as tube:
        with pytest.raises(TubeError) as refused, tube.producer("planes") as producer:
            producer.send(Message("planes", b"x"))
        with tube.consumer("bobs", {"planes": set()}) as consumer:
            consumer.confirm(consumer.get(10))

    assert refused.value.code == 415


def test_what_was_granted_to_nobody_is_nobodys(locked):
    with (
        client(locked, "alice", "wonder") as tube,
        pytest.raises(TubeError, match="415"),
        tube.consumer("alices", {"other/home/ships": set()}) as consumer,
    ):
        consumer.get(2)
