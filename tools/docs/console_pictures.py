"""Draws the pictures of the console in docs/images, by Chromium: light and dark.

usage: python -m tools.docs.console_pictures

Needs chromium, chromedriver, and the packages of the tests. Three nodes serve, a group is
behind, and a Pulsar producer writes readings with an Avro schema.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import pulsar
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pulsar.schema import AvroSchema, Double, Record, String
from tests.gateway.http.console.browser import WAIT_S, Browser
from tests.server import Server, start_server

IMAGES = Path(__file__).parent.parent.parent / "docs" / "images"
WIDTH, HEIGHT = 1000, 720
PARTITIONS = 6
GROUPS = {"audit": 400, "billing": 250, "mail": 400, "search": 398}
CHART_S = 60  # of live figures before a picture of charts


class Reading(Record):
    """A message of the topic `readings`."""

    sensor = String()
    celsius = Double()


def fill(server: Server) -> None:
    """Write messages and positions."""
    config = {"bootstrap.servers": server.kafka}
    admin = AdminClient(config)
    topics = [NewTopic("orders", PARTITIONS), NewTopic("bills", 3), NewTopic("readings", 1)]
    for each in admin.create_topics(topics).values():
        each.result(WAIT_S)
    for name, offset in GROUPS.items():
        consumer = Consumer({**config, "group.id": name})
        places = [TopicPartition("orders", each, offset) for each in range(PARTITIONS)]
        consumer.commit(offsets=places, asynchronous=False)
        consumer.close()
    client = pulsar.Client(server.pulsar)
    producer = client.create_producer("readings-partition-0", schema=AvroSchema(Reading))
    for number in range(12):
        reading = Reading(sensor=f"roof-{number % 3}", celsius=18.5 + number / 4)
        producer.send(reading, partition_key=reading.sensor, properties={"site": "north"})
    client.close()


def write_orders(producer: Producer, orders: int) -> None:
    """Send so many messages to each partition of `orders`."""
    for number in range(orders * PARTITIONS):
        value = f'{{"order": {number}, "item": "lamp"}}'
        producer.produce("orders", value, f"order-{number}", partition=number % PARTITIONS)
    if producer.flush(WAIT_S):
        raise TimeoutError("messages were not acknowledged")


def draw(browser: Browser, name: str, *, dark: bool) -> None:
    """Write a picture of the page as it is."""
    feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    browser.driver.save_screenshot(str(IMAGES / f"console-{name}.png"))


def main() -> None:
    """Draw all pictures."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        browser = Browser(place / "profile")
        browser.driver.set_window_size(WIDTH, HEIGHT)
        browser.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False},
        )
        with start_server(place / "data", settings={"nodes": 3}) as server:
            fill(server)
            producer = Producer({"bootstrap.servers": server.kafka})
            write_orders(producer, 220)
            console = f"{server.http}/console"
            browser.open(f"{console}/")
            browser.wait("figure[data-gauge=trilogue_connections] polyline")
            for second in range(CHART_S):
                write_orders(producer, 1 + second * 7 % 5)
                time.sleep(1)
            draw(browser, "overview", dark=False)
            browser.open(f"{console}/groups")
            browser.wait("td", "billing")
            draw(browser, "groups", dark=True)
            browser.click("billing")
            browser.wait("#lag")
            draw(browser, "group", dark=True)
            browser.open(f"{console}/topic?name=readings")
            browser.click("Messages")
            browser.wait("td", "roof-1")
            draw(browser, "messages", dark=False)
        browser.driver.quit()


if __name__ == "__main__":
    main()
