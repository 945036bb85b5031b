"""The files of deploy/: queries name series that /metrics has, commands are the program's."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pulsar
import pytest
import yaml
from confluent_kafka import Consumer, Producer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from tests.server import Server, start_server
from trilogue.gateway.http.request_timing import AREAS
from trilogue.node.metrics.topic_metrics import DOCS

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
NAME = re.compile(r"\b(?:trilogue|kafka|pulsar|process)_[a-z_]+\b")
OF_OTHERS = {"up"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A node with a Kafka group, a Pulsar subscription, and figures of both."""
    with start_server(tmp_path_factory.mktemp("node") / "data") as started:
        producer = Producer({"bootstrap.servers": started.kafka})
        for number in range(5):
            producer.produce("orders", str(number), partition=0)
        producer.flush()
        consumer = Consumer(
            {
                "bootstrap.servers": started.kafka,
                "group.id": "billing",
                "enable.auto.commit": False,
            }
        )
        consumer.commit(offsets=[TopicPartition("orders", 0, 2)], asynchronous=False)
        consumer.assign([TopicPartition("orders", 0, 0)])
        assert consumer.poll(60) is not None
        consumer.close()
        client = pulsar.Client(started.pulsar)
        client.subscribe("sensors", "analytics").close()
        sender = client.create_producer("sensors")
        for _ in range(3):
            sender.send(b"x")
        client.close()
        yield started


@pytest.fixture(scope="module")
def samples(server: Server) -> list[Any]:
    """All samples of a scrape, read by Prometheus' own parser."""
    text = httpx.get(f"{server.http}/metrics").raise_for_status().text
    return [each for family in text_string_to_metric_families(text) for each in family.samples]


def find(samples: list[Any], name: str, **labels: str) -> float:
    (found,) = (
        each.value
        for each in samples
        if each.name == name and labels.items() <= each.labels.items()
    )
    return float(found)


def queries() -> Iterator[tuple[str, str]]:
    rules = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]
    for path in sorted((DEPLOY / "grafana").glob("*.json")):
        board = json.loads(path.read_text())
        for panel in board["panels"]:
            for target in panel["targets"]:
                yield f"{path.name}: {panel['title']}", target["expr"]
        for variable in board["templating"]["list"]:
            if variable["type"] == "query":
                yield f"{path.name}: {variable['name']}", variable["query"]["query"]


@pytest.mark.parametrize(("title", "query"), list(queries()), ids=lambda text: text[:60])
def test_a_query_names_series_that_exist(samples: list[Any], title: str, query: str):
    names = set(NAME.findall(query))
    known = {each.name for each in samples} | set(DOCS)

    assert names, title
    assert names <= known, title


def test_labels_of_queries_exist(samples: list[Any]):
    labels = {each.name: set(each.labels) for each in samples}
    for title, query in queries():
        for name, matchers in re.findall(r"\b([a-z_]+)\{([^}]*)\}", query):
            for label in re.findall(r"(\w+)[=!]", matchers):
                if name in labels and label not in {"instance", "job"}:
                    assert label in labels[name], title


def test_every_named_series_is_in_a_scrape_or_documented(samples: list[Any]):
    found = {each.name for each in samples}

    assert set(DOCS) - found <= {"trilogue_tubemq_group_lag"}


def test_lag_has_the_names_of_a_kafka_exporter(samples: list[Any]):
    labels = {"consumergroup": "billing", "topic": "orders"}

    assert find(samples, "kafka_consumergroup_current_offset", partition="0", **labels) == 2
    assert find(samples, "kafka_consumergroup_lag", partition="0", **labels) == 3
    assert find(samples, "kafka_consumergroup_lag_sum", **labels) == 3
    assert find(samples, "kafka_topic_partition_current_offset", topic="orders", partition="0") == 5


def test_subscriptions_have_the_names_of_a_pulsar_broker(samples: list[Any]):
    topic = "persistent://public/default/sensors"
    labels = {"cluster": "standalone", "namespace": "public/default", "topic": topic}

    assert find(samples, "pulsar_subscription_back_log", subscription="analytics", **labels) == 3
    assert find(samples, "pulsar_in_messages_total", **labels) == 3
    assert find(samples, "pulsar_subscriptions_count", **labels) == 1
    assert find(samples, "pulsar_rate_in", **labels) >= 0


def test_topics_have_the_names_that_a_jmx_exporter_gives_them(samples: list[Any]):
    prefix = "kafka_server_brokertopicmetrics"

    assert find(samples, f"{prefix}_messagesin_total", topic="orders") == 5
    sent = find(samples, f"{prefix}_bytesin_total", topic="orders")
    assert sent >= 61 + 5 * 8  # one batch, or more
    assert 0 < find(samples, f"{prefix}_bytesout_total", topic="orders") <= sent
    assert find(samples, "trilogue_disk_free_bytes") > 0


def test_latencies_have_the_names_that_others_know(samples: list[Any]):
    produced = {"door": "kafka", "api": "Produce"}
    requests = find(samples, "trilogue_requests_total", **produced)
    assert find(samples, "trilogue_request_seconds_count", **produced) == requests
    assert find(samples, "trilogue_request_seconds_bucket", le="+Inf", **produced) == requests
    jmx = "kafka_network_requestmetrics_totaltimems"
    assert find(samples, f"{jmx}_count", request="Produce") == requests
    median = find(samples, jmx, request="Produce", quantile="0.5")
    assert 0 < median <= find(samples, jmx, request="Produce", quantile="0.99")
    assert find(samples, f"{jmx}_count", request="OffsetCommit") == 1

    assert find(samples, "trilogue_request_seconds_count", door="pulsar", api="SEND") == 3
    assert find(samples, "pulsar_broker_publish_latency", quantile="0.99") > 0
    ranges = [each for each in samples if each.name.startswith("pulsar_storage_write_latency_le_")]
    assert [each.name.rpartition("le_")[2] for each in ranges] == [
        "0_5", "1", "5", "10", "20", "50", "100", "200", "1000", "overflow",
    ]  # fmt: skip


def test_latency_of_http_has_a_bounded_label(server: Server):
    for path in ("healthz", "made-up/1", "made-up/2"):
        httpx.get(f"{server.http}/{path}")
    text = httpx.get(f"{server.http}/metrics").raise_for_status().text
    found = {
        each.labels["api"]: each.value
        for family in text_string_to_metric_families(text)
        for each in family.samples
        if each.name == "trilogue_request_seconds_count" and each.labels["door"] == "http"
    }

    assert found["healthz"] >= 1
    assert found["other"] >= 2
    assert set(found) <= AREAS | {"other"}


def test_series_keep_the_rules_of_promtool(server: Server):
    """Every family has a help text; counters, and only these, end in `_total`."""
    text = httpx.get(f"{server.http}/metrics").raise_for_status().text
    for family in text_string_to_metric_families(text):
        assert family.documentation, family.name
        assert re.fullmatch(r"[a-z_:][a-z0-9_:]*", family.name), family.name
        if family.name.startswith("trilogue_"):  # the others are names of foreign programs
            assert not family.name.endswith(("_count", "_sum", "_bucket")), family.name
        ends_in_total = all(each.name.endswith("_total") for each in family.samples)
        assert ends_in_total == (family.type == "counter"), family.name


@pytest.mark.parametrize(("series", "left_out"), [(0, 1), (5, 1), (1_000, 0)])
def test_series_with_names_are_bounded(tmp_path: Path, series: int, left_out: int):
    with start_server(tmp_path / "data", settings={"http.metrics-series": series}) as node:
        producer = Producer({"bootstrap.servers": node.kafka})
        for number in range(10):
            producer.produce(f"topic-{number}", "x")
        producer.flush()
        text = httpx.get(f"{node.http}/metrics").raise_for_status().text
        found = [
            sample
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name in DOCS
        ]

        assert find(found, "trilogue_series_left_out") == left_out
        assert len(found) - 1 <= series


def test_commands_of_the_files_are_taken(tmp_path: Path):
    unit = (DEPLOY / "systemd" / "trilogue.service").read_text()
    (line,) = re.findall(r"^ExecStart=\S*/trilogue (.*)$", unit, re.MULTILINE)
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    dockerfile = (DEPLOY / "Dockerfile").read_text().replace("\\\n", "")
    (default,) = re.findall(r"^CMD (\[.*\])$", dockerfile, re.MULTILINE)
    for command in (
        shlex.split(line),
        compose["services"]["trilogue"]["command"],
        json.loads(default),
    ):
        given = [
            str(each)
            for each in command
            if str(each).startswith(("--listen", "--advertise", "--set"))
        ]
        checked = subprocess.run(
            [sys.executable, "-m", "trilogue.cli.main", command[0], *given, "--config", "missing"],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            check=False,
        )
        assert checked.returncode == 2
        assert "missing" in checked.stderr, checked.stderr
    assert "USER 10001" in dockerfile


def test_the_health_check_of_the_image_follows_the_node(server: Server, tmp_path: Path):
    def check(address: str) -> int:
        command = [sys.executable, str(DEPLOY / "healthcheck.py"), address]
        return subprocess.run(command, capture_output=True, check=False).returncode

    assert check(server.http) == 0
    assert check("http://127.0.0.1:9") == 1
    with start_server(tmp_path / "data", listen={}, arguments=["--secure"]) as secured:
        assert check(f"https://{secured.doors['https']}") == 0
