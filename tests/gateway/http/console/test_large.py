"""Pages of a node with 10,000 topics and 1,000 groups cost little, and hold the loop shortly."""

from __future__ import annotations

from tests.cpu_time import measure_cpu
from tests.gateway.http.console.page import Page
from tests.gateway.http.console.rig import console_services, open_console
from tests.gateway.loop import on_loop
from tests.gateway.pulsar.rig import Rig, settle
from trilogue.broker.access.client_access import ClientAccess
from trilogue.broker.facts import CursorMove, Protocol

TOPICS, GROUPS = 10_000, 1_000
CPU_S = 2.0  # of one page, on a slow machine too


@on_loop
async def test_a_page_costs_little_however_much_there_is():
    async with Rig() as rig:
        ids = [
            rig.topic(f"persistent://public/default/topic-{number:05}").partitions[0].partition_id
            for number in range(TOPICS)
        ]
        for number in range(GROUPS):
            moves = [CursorMove(each, 0, -1, "") for each in ids[number : number + 10]]
            rig.broker.commit(Protocol.KAFKA, f"group-{number:04}", moves)
            rig.broker.commit(Protocol.TUBEMQ, f"tube-{number:04}", moves)
            rig.broker.subscriptions.create(ids[number], "analytics", 0, None)
        await settle()
        client = open_console(console_services(rig), ClientAccess())
        pages = {
            "/": "10\u202f000",
            "/topics": "topic-00049",
            "/topics?after=public/default/topic-09000": "topic-09050",
            "/topics?q=99": "topic-00099",
            "/topic?name=topic-05000": "topic-05000",
            "/groups": "group-0049",
            "/groups?q=0999": "group-0999",
            "/group?name=group-0500": "topic-00500",
            "/subscriptions?q=topic-0": "topic-00049",
            "/tubemq-groups": "tube-0049",
            "/tubemq-group?name=tube-0500": "topic-00500",
        }
        for path in pages:
            await client.get(f"/console{path}")  # templates are compiled once
        for path, text in pages.items():
            with measure_cpu() as used:
                answer = await client.get(f"/console{path}")

            assert answer.status_code == 200
            assert text in Page(answer.text).text, path
            assert used.seconds < CPU_S, path
            assert len(Page(answer.text).rows) <= 300
