"""`url=` of each protocol at a secured server, in a real Spark, with the logins of its clients."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from tests.server import start_server
from tests.spark.protocols.rows import ROWS
from trilogue.client.properties import read_keys

pytestmark = pytest.mark.full
TOPIC = "secured"
PASSWORD_FILE = "clients/admin.password"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("secured") / "data"
    with start_server(folder, arguments=["--secure"]):
        keys = read(folder, "librdkafka.conf")
        producer = confluent_kafka.Producer(keys)
        for row in ROWS:
            producer.produce(TOPIC, partition=0, **row)
        assert producer.flush(90) == 0
        yield folder


def read(data: Path, name: str) -> dict[str, str]:
    return {key: value for _, key, value in read_keys(data / "clients" / name)}


def kafka_options(data: Path) -> dict[str, str]:
    given = {
        key: value for key, value in read(data, "spark.properties").items() if "servers" not in key
    }
    servers = read(data, "spark.properties")["kafka.bootstrap.servers"]
    return {"url": f"kafka://{servers}", **given}


def pulsar_options(data: Path) -> dict[str, str]:
    given = read(data, "pulsar.conf")
    return {
        "url": given["brokerServiceUrl"],
        "pulsar.client.authPluginClassName": given["authPlugin"],
        "pulsar.client.authParams": given["authParams"],
        "pulsar.client.tlsTrustCertsFilePath": given["tlsTrustCertsFilePath"],
    }


def tubemq_options(data: Path) -> dict[str, str]:
    given = read(data, "tubemq.properties")
    return {
        "url": f"tubemq://{given['masterInfo']}",
        "tubemq.user": given["usrName"],
        "tubemq.password": given["usrPassWord"],
    }


EACH = [kafka_options, pulsar_options, tubemq_options]


@pytest.mark.parametrize("find_options", EACH)
def test_each_protocol_logs_in_and_gives_the_same_rows(spark, data, find_options, tmp_path):
    frame = spark.read.format("trilogue").options(**find_options(data)).load(TOPIC)
    rows = frame.orderBy("offset").collect()

    assert [(row.key, row.value) for row in rows] == [(row["key"], row["value"]) for row in ROWS]
    assert [row.offset for row in rows] == list(range(len(ROWS)))
    assert password(data) not in frame._jdf.queryExecution().toString()


@pytest.mark.parametrize("find_options", EACH)
def test_a_wrong_password_is_an_error_without_it(spark, data, find_options):
    given = {
        key: value.replace(password(data), "hunter2") for key, value in find_options(data).items()
    }

    with pytest.raises(Exception, match=r"(?i)passw|auth|credential|denied|refused") as refused:
        spark.read.format("trilogue").options(**given).load(TOPIC).count()
    assert "hunter2" not in str(refused.value)


def password(data: Path) -> str:
    found = (data / PASSWORD_FILE).read_text().strip()
    assert found in json.dumps(pulsar_options(data))
    return found
