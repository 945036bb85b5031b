"""An administrator walks the console in Chromium: charts, keys, search, forms; with logins too."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.gateway.http.console.browser import WAIT_S, Browser
from tests.security.test_http_login import PASSWORD, make_files
from tests.server import Server, start_server

pytestmark = pytest.mark.timeout(180)


def fill_topic(server: Server) -> None:
    producer = Producer({"bootstrap.servers": server.kafka})
    for number in range(120):
        note = "<script>document.title='taken over'</script><img src=x onerror=alert(1)>"
        producer.produce("orders", json.dumps({"number": number, "note": note}), f"key-{number}")
    producer.flush()
    consumer = Consumer({"bootstrap.servers": server.kafka, "group.id": "billing"})
    consumer.commit(offsets=[TopicPartition("orders", 0, 7)], asynchronous=False)
    consumer.close()


def test_an_administrator_finds_a_message_and_resets_a_group(tmp_path: Path, browser: Browser):
    with start_server(tmp_path / "data") as server:
        fill_topic(server)
        browser.open(f"{server.http}/")
        browser.wait("h1", "Overview")
        browser.wait("figure[data-gauge=trilogue_connections] polyline")
        browser.wait("figure[data-counter=trilogue_messages_total] output", "0")

        browser.press("g", "t")
        browser.wait("h1", "Topics")
        browser.press("/", "orders", Keys.ENTER)
        browser.wait("td", "public/default/orders")
        browser.click("public/default/orders")
        browser.wait("h1", "public/default/orders")
        browser.click("Messages")
        browser.wait("h1", "Messages of")
        browser.press("p")
        browser.wait("td", "key-20")
        browser.fill("key", "key-17")
        browser.submit("Show")
        browser.wait("p", "1 found among 120 messages")
        browser.wait("pre", "<script>")
        assert "Messages of" in browser.driver.title

        browser.press("g", "g")
        browser.wait("h1", "Kafka groups")
        browser.click("billing")
        browser.wait("#lag", "113")
        browser.choose("to", "latest")
        browser.submit("Reset")
        browser.wait("#lag", "0")
        browser.check_no_complaints()


def test_a_browser_logs_in_and_sees_what_its_user_may(tmp_path: Path, browser: Browser):
    settings = make_files(tmp_path)
    with start_server(tmp_path / "data", settings=settings) as server:
        with httpx.Client(base_url=server.http, auth=("admin", PASSWORD), timeout=60) as admin:
            for name in ("secrets", "orders"):
                path = f"/admin/v2/persistent/public/default/{name}/partitions"
                assert admin.put(path, content="1").status_code == 204
            for operation in ("READ", "DESCRIBE"):
                acl = {
                    "resourceType": "TOPIC",
                    "resourceName": "public/default/orders",
                    "patternType": "LITERAL",
                    "principal": "User:alice",
                    "host": "*",
                    "operation": operation,
                    "permissionType": "ALLOW",
                }
                assert admin.post("/trilogue/acls", json=[acl]).status_code == 200
        place = server.doors["http"]
        browser.open(f"http://admin:{PASSWORD.replace(' ', '%20')}@{place}/console/topics")
        browser.wait("td", "public/default/secrets")
        browser.open(f"http://{place}/console/produce?name=secrets")
        browser.fill("key", "by-hand")
        browser.fill("value", '{"a": 1}')
        browser.submit("Produce")
        browser.wait("td", "by-hand")
        browser.open(f"http://{place}/console/users")
        browser.wait("td", "User:alice")
        for field, text in (("principal", "User:bob"), ("resourceName", "bobs")):
            path = f"//form[contains(@action, '/acl/add')]//input[@name='{field}']"
            browser.driver.find_element(By.XPATH, path).send_keys(text)
        browser.choose("operation", "WRITE")
        browser.submit("Add the ACL")
        browser.wait("td", "User:bob")
        browser.open(f"http://{place}/console/topics")
        browser.fill("name", "bobs")
        browser.submit("Create")
        browser.wait("h1", "public/default/bobs")
        browser.fill("confirm", "public/default/bobs")
        browser.submit("Delete the topic")
        browser.wait("h1", "Topics")
        assert "bobs" not in browser.text
        browser.check_no_complaints()
        browser.open(f"http://alice:{PASSWORD.replace(' ', '%20')}@{place}/console/topics")
        browser.wait("td", "public/default/orders")
        assert "secrets" not in browser.text
        browser.fill("name", "mine")
        browser.submit("Create")
        browser.wait("h1", "This did not work")
        for page in ("messages?name=secrets", "topic?name=secrets", "users", "connections"):
            browser.open(f"http://alice:{PASSWORD.replace(' ', '%20')}@{place}/console/{page}")
            browser.wait("h1", "This did not work")
            assert "by-hand" not in browser.text


def fill_nodes(server: Server) -> None:
    """Write to six partitions with keys, and commit offsets of four groups."""
    admin = AdminClient({"bootstrap.servers": server.kafka})
    admin.create_topics([NewTopic("orders", 6)])["orders"].result(WAIT_S)
    producer = Producer({"bootstrap.servers": server.kafka, "enable.idempotence": True})
    for number in range(60):
        producer.produce("orders", f"value {number}", f"key-{number}", partition=number % 6)
    assert producer.flush(WAIT_S) == 0
    for name, offset in {"billing": 4, "audit": 10, "mail": 10, "search": 10}.items():
        consumer = Consumer({"bootstrap.servers": server.kafka, "group.id": name})
        places = [TopicPartition("orders", each, offset) for each in range(6)]
        consumer.commit(offsets=places, asynchronous=False)
        consumer.close()


def list_node_pages(browser: Browser) -> list[str]:
    """Return the addresses of this page at all nodes."""
    nodes = browser.driver.find_elements(By.CSS_SELECTOR, "nav.nodes a")
    return [str(each.get_attribute("href")) for each in nodes]


@pytest.mark.long
def test_an_administrator_finds_at_any_of_three_nodes_what_another_one_has(
    tmp_path: Path, browser: Browser
):
    with start_server(tmp_path / "data", settings={"nodes": 3}) as server:
        fill_nodes(server)
        browser.open(f"{server.http}/")
        browser.wait("h1", "Overview")
        assert browser.text.count("tubemq-broker 127.0.0.1") == 3
        for page in ("Topics", "Subscriptions", "TubeMQ groups", "Connections", "Transactions"):
            browser.click(page)
            browser.wait("h1", {"Subscriptions": "Pulsar subscriptions"}.get(page, page))
        browser.click("Groups")
        browser.wait("h1", "Kafka groups")
        addresses = list_node_pages(browser)
        assert len(set(addresses)) == 3
        for address in addresses:  # each lists the groups of all, with their whole lag
            browser.open(address)
            browser.wait("h1", "Kafka groups")
            rows = browser.driver.find_elements(By.CSS_SELECTOR, "tbody tr")
            lags = {row.text.split()[0]: row.text.split()[-1] for row in rows}
            assert lags == {"audit": "0", "billing": "36", "mail": "0", "search": "0"}
            browser.click("billing")
            browser.wait("h1", "Group billing")
            browser.wait("#lag", "36")
        browser.choose("to", "latest")
        browser.submit("Reset")
        browser.wait("#lag", "0")
        reader = Consumer({"bootstrap.servers": server.kafka, "group.id": "billing"})
        positions = reader.committed([TopicPartition("orders", each) for each in range(6)], WAIT_S)
        reader.close()
        assert [each.offset for each in positions] == [10] * 6

        pages = [address.replace("/groups", "/topic?name=orders") for address in addresses]
        for page in pages:  # a key of the last partition, from the first one on
            browser.open(page)
            browser.wait("h1", "public/default/orders")
            browser.click("Messages")
            browser.wait("h1", "Messages of")
            browser.fill("key", "key-35")
            browser.driver.find_element(By.NAME, "across").click()
            browser.submit("Show")
            browser.wait("p", "found among")
            for _ in range(6):
                if "value 35" in browser.text:
                    break
                browser.click("Search on")
                browser.wait("p", "found among")
            browser.wait("pre", "value 35")

        writers: dict[str, str] = {}
        for page in pages:
            browser.open(page)
            browser.wait("#kafka-producers", "Producer id")
            for row in browser.driver.find_elements(By.CSS_SELECTOR, "#kafka-producers tbody tr"):
                partition, producer_id, *_ = row.text.split()
                writers[partition] = producer_id
        assert set(writers) == set("012345")
        assert len(set(writers.values())) == 1
        browser.check_no_complaints()
