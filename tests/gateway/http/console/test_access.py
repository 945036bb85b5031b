"""The bypass matrix, console: every page and form, for a principal without any ACL."""

from __future__ import annotations

import re
from urllib.parse import quote

import httpx
import pytest

from tests.gateway.http.console.rig import HOST, console_services, open_console
from tests.gateway.kafka.rig import batch
from tests.gateway.loop import on_loop
from tests.gateway.pulsar.rig import Rig, settle
from tests.security.bypass import ORDERS, SECRET, NoAcls, describe_state
from trilogue.broker.access.audit import AuditLog
from trilogue.broker.access.authorizer import CLUSTER, Resource
from trilogue.broker.access.client_access import ClientAccess
from trilogue.broker.facts import CursorMove, Protocol
from trilogue.broker.quotas.quotas import QuotaEntity, QuotaKind
from trilogue.gateway.http.console.app import CHANGES, PAGES

SPELLINGS = ("orders", ORDERS, f"persistent://{ORDERS}", f"persistent://{ORDERS}-partition-0")
OTHERS = (
    "Orders",
    "orders/",
    "persistent://public/default/%6frders",
    "../default/orders",
    "a/b/c/d/e",
)
GROUP = "billing"
WITHOUT_NAMES = {"/", "/topics", "/groups", "/subscriptions", "/tubemq-groups", "/transactions"}
"""Pages that are lists: they leave out what the principal may not see."""
FORMS = {
    "/topic/create": {"name": "", "partitions": "2"},
    "/topic/delete": {"name": "", "confirm": ORDERS},
    "/topic/partitions": {"name": "", "partitions": "3"},
    "/topic/setting": {"name": "", "key": "retention.ms", "value": "1000"},
    "/user/create": {"name": "mallory", "password": "secret"},
    "/user/password": {"name": "owner", "password": "secret"},
    "/user/delete": {"name": "owner", "confirm": "owner"},
    "/acl/add": {
        "resourceType": "TOPIC",
        "resourceName": "*",
        "principal": "User:mallory",
        "operation": "ALL",
    },
    "/acl/remove": {
        "resourceType": "TOPIC",
        "resourceName": "*",
        "principal": "User:mallory",
        "operation": "ALL",
    },
    "/quota/set": {"client-id": "mallory", "key": "producer_byte_rate", "rate": "1"},
    "/quota/remove": {"client-id": "owner", "key": "producer_byte_rate"},
    "/produce": {"name": "", "value": "x"},
    "/group/reset": {"name": GROUP, "topic": "", "to": "earliest"},
    "/subscription/reset": {"name": "analytics", "topic": "", "to": "earliest"},
    "/tubemq-group/reset": {"name": GROUP, "topic": "", "to": "earliest"},
}


class RecordedAdministration:
    """Notes the changes of users and ACLs that reach it."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, object]] = []

    def recorded_by(self, record):
        self.record = record
        return self

    def __getattr__(self, name):
        async def change(*values):
            self.changes.append((name, values))
            self.record(name, Resource(*CLUSTER))
            return values

        return change


class Console(Rig):
    """A node with the secret topic, its readers, and the console of a principal."""

    async def prepare(self) -> httpx.AsyncClient:
        self.acls = NoAcls()
        self.administration = RecordedAdministration()
        topic = self.topic(f"persistent://{ORDERS}", 1)
        topic.partitions[0].append(memoryview(batch(SECRET)), now_ms=self.now_ms)
        partition_id = topic.partitions[0].partition_id
        quota = QuotaEntity(client="owner"), {QuotaKind.PRODUCED: 1_000.0}
        await self.gateway.write_metadata(self.broker.quotas.plan_alter([quota]))
        for protocol in (Protocol.KAFKA, Protocol.TUBEMQ):
            self.broker.commit(protocol, GROUP, [CursorMove(partition_id, 1, -1, "")])
        self.broker.subscriptions.create(partition_id, "analytics", 1, None)
        await settle()
        services = console_services(
            self,
            list_connections=lambda: {"kafka": [("198.51.100.7:1", "User:owner", "billing")]},
            make_administration=self.make_administration,
        )
        self.acts = []
        access = ClientAccess(self.acls, AuditLog(self.acts.append, lambda: 0), host=HOST)
        return open_console(services, access)

    def make_administration(self) -> RecordedAdministration:
        assert self.acls.is_open, "users were listed or changed"
        return self.administration

    async def token(self, client: httpx.AsyncClient) -> str:
        """The token of the principal's forms, from a page that it once could see."""
        self.acls.is_open = True
        page = await client.get("/console/produce", params={"name": ORDERS})
        self.acls.is_open = False
        return re.search(r'name="token" value="([0-9a-f]+)"', page.text)[1]


def test_every_form_is_in_the_matrix():
    assert {path for path, _ in CHANGES} == set(FORMS)


@pytest.mark.parametrize("name", SPELLINGS)
@pytest.mark.parametrize("path", [path for path, _ in PAGES])
@on_loop
async def test_a_page_without_rights_shows_nothing(path, name):
    async with Console() as rig:
        client = await rig.prepare()
        before = describe_state(rig)[:-1]
        query = f"name={quote(name)}&topic={quote(name)}&q=&to=earliest"
        for parameters in (query, query.replace(quote(name), GROUP, 1)):
            answer = await client.get(f"/console{path}?{parameters}")

            assert answer.status_code == (200 if path in WITHOUT_NAMES else 403), answer.text
            assert SECRET not in answer.content
            if answer.status_code == 200:
                assert ORDERS not in answer.text
            for hidden in ("analytics", "198.51.100.7"):
                assert hidden not in answer.text
        assert describe_state(rig)[:-1] == before


@pytest.mark.parametrize("path", sorted(WITHOUT_NAMES))
@on_loop
async def test_a_list_leaves_out_what_its_reader_may_not_see(path):
    async with Console() as rig:
        client = await rig.prepare()
        hidden = await client.get(f"/console{path}")
        rig.acls.is_open = True
        shown = await client.get(f"/console{path}")

        assert ORDERS not in hidden.text
        assert f">{GROUP}<" not in hidden.text
        if path == "/topics":
            assert ORDERS in shown.text
        if path.endswith("groups"):
            assert f">{GROUP}<" in shown.text
        if path == "/subscriptions":
            assert "analytics" in shown.text


@pytest.mark.parametrize("name", SPELLINGS)
@pytest.mark.parametrize("path", FORMS)
@on_loop
async def test_a_form_without_rights_changes_nothing(path, name):
    async with Console() as rig:
        client = await rig.prepare()
        token = await rig.token(client)
        before = describe_state(rig)[:-1]
        fields = {key: value or name for key, value in FORMS[path].items()}
        answer = await client.post(f"/console{path}", data={**fields, "token": token})

        assert answer.status_code == 403
        assert describe_state(rig)[:-1] == before


@pytest.mark.parametrize("path", FORMS)
@on_loop
async def test_each_change_is_a_line_of_the_audit_log(path):
    async with Console() as rig:
        client = await rig.prepare()
        token = await rig.token(client)
        name = "created" if path == "/topic/create" else ORDERS
        fields = {key: value or name for key, value in FORMS[path].items()}
        rig.acls.is_open = True
        answer = await client.post(f"/console{path}", data={**fields, "token": token})

        assert answer.status_code == 303, answer.text
        assert [(each["event"], each["address"]) for each in rig.acts] == [("done", HOST)]


@pytest.mark.parametrize("name", OTHERS)
@on_loop
async def test_no_other_spelling_leads_to_the_topic(name):
    async with Console() as rig:
        client = await rig.prepare()
        for path in ("/topic", "/topic.json", "/messages", "/produce"):
            answer = await client.get(f"/console{path}", params={"name": name})

            assert answer.status_code in {400, 403, 404}
            assert SECRET not in answer.content


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:8081"},
        {"sec-fetch-site": "cross-site"},
        {"origin": HOST, "sec-fetch-site": "same-site"},
        {},
    ],
)
@pytest.mark.parametrize("path", FORMS)
@on_loop
async def test_a_form_of_another_site_changes_nothing(path, headers):
    """Whatever the origin: without headers it is the token that is missing."""
    async with Console() as rig:
        client = await rig.prepare()
        token = await rig.token(client) if headers else "0" * 64
        rig.acls.is_open = True
        before = describe_state(rig)[:-1]
        fields = {key: value or ORDERS for key, value in FORMS[path].items()}
        answer = await client.post(
            f"/console{path}", data={**fields, "token": token}, headers=headers
        )

        assert answer.status_code == 403
        assert describe_state(rig)[:-1] == before


@pytest.mark.parametrize("path", FORMS)
@on_loop
async def test_an_own_form_with_rights_changes_something(path):
    async with Console() as rig:
        client = await rig.prepare()
        token = await rig.token(client)
        rig.acls.is_open = True
        before = describe_state(rig)[:-1]
        named = "fresh" if path == "/topic/create" else ORDERS
        fields = {key: value or named for key, value in FORMS[path].items()}
        answer = await client.post(
            f"/console{path}",
            data={**fields, "token": token},
            headers={"origin": HOST, "sec-fetch-site": "same-origin"},
        )
        await settle()

        assert answer.status_code == 303, answer.text
        users_and_acls = {
            "/user/create": "create_user",
            "/user/password": "set_password",
            "/user/delete": "delete_user",
            "/acl/add": "add_acls",
            "/acl/remove": "remove_acls",
        }
        if path in users_and_acls:
            assert [name for name, _ in rig.administration.changes] == [users_and_acls[path]]
            return
        if path.startswith(("/topic/", "/quota/")):
            assert describe_state(rig)[:-1] != before
            return
        positions = rig.broker.committed_offsets
        partition = rig.broker.cluster.find_topic(rig.name(f"persistent://{ORDERS}")).partitions[0]
        moved = {
            "/produce": describe_state(rig)[:-1] != before,
            "/group/reset": positions.positions(Protocol.KAFKA, GROUP)[partition.partition_id].mark
            == 0,
            "/tubemq-group/reset": positions.positions(Protocol.TUBEMQ, GROUP)[
                partition.partition_id
            ].mark
            == 0,
            "/subscription/reset": rig.broker.subscriptions.find_cursor(
                partition.partition_id, "analytics"
            ).mark
            == 0,
        }
        assert moved[path]
