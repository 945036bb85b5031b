"""An administrator walks the console in Chromium: charts, keys, search, forms; with logins too."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

from tests.security.test_http_login import PASSWORD, make_files
from tests.server import Server, start_server
from tests.tools import require_program

WAIT_S = 30
pytestmark = pytest.mark.timeout(180)


class Browser:
    """A headless Chromium that resolves no name, so that it reaches this machine only."""

    def __init__(self, folder: Path) -> None:
        options = ChromeOptions()
        options.binary_location = str(shutil.which("chromium"))
        for argument in (
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
            f"--user-data-dir={folder}",
            "--window-size=1300,1000",
        ):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = Chrome(options=options, service=Service(shutil.which("chromedriver")))

    def open(self, address: str) -> None:
        self.driver.get(address)

    def wait(self, selector: str, text: str = "") -> None:
        """Wait until an element is there and has a text."""

        def has_text(driver: Chrome) -> bool:
            return any(
                text in each.text for each in driver.find_elements(By.CSS_SELECTOR, selector)
            )

        ignored = [StaleElementReferenceException]  # of the page before
        waiting = WebDriverWait(self.driver, WAIT_S, ignored_exceptions=ignored)
        waiting.until(has_text, f"{selector} with {text!r}")

    def click(self, text: str) -> None:
        self.driver.find_element(By.LINK_TEXT, text).click()

    def press(self, *keys: str) -> None:
        for key in keys:
            self.driver.switch_to.active_element.send_keys(key)

    def fill(self, name: str, text: str) -> None:
        self.driver.find_element(By.NAME, name).send_keys(text)

    def choose(self, name: str, value: str) -> None:
        chosen = self.driver.find_element(By.CSS_SELECTOR, f"select[name='{name}']")
        Select(chosen).select_by_value(value)

    def submit(self, text: str) -> None:
        self.driver.find_element(By.XPATH, f"//main//button[text()='{text}']").click()

    @property
    def text(self) -> str:
        return str(self.driver.find_element(By.TAG_NAME, "main").text)

    def check_no_complaints(self) -> None:
        """Nothing that the page has was refused by its policy, and no script failed."""
        found = [
            line["message"]
            for line in self.driver.get_log("browser")
            if line["level"] == "SEVERE" and "favicon" not in line["message"]
        ]
        assert found == []


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    require_program("chromium")
    require_program("chromedriver")
    made = Browser(tmp_path / "profile")
    yield made
    made.driver.quit()


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
        with httpx.Client(base_url=server.http, auth=("admin", PASSWORD), timeout=20) as admin:
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
