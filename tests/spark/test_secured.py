"""The source and the sink at a secured server, with the options that `serve --secure` wrote."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark import cloudpickle

from tests.security.certificates import Authority
from tests.server import start_server
from tests.spark.rooms import close_links, run_available
from trilogue.cli.http_client import read_http_config
from trilogue.client.properties import read_keys
from trilogue.spark.errors import SchemaUnavailable
from trilogue.spark.offsets import Range
from trilogue.spark.payload.resolution import resolve_payloads
from trilogue.spark.range_reader import read_range
from trilogue.spark.read_options import ReadOptions

pytestmark = pytest.mark.full
PASSWORD_FILE = "clients/admin.password"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("secured") / "data"
    with start_server(folder, arguments=["--secure"]):
        yield folder


def options(data: Path) -> dict[str, str]:
    lines = read_keys(data / "clients" / "spark.properties")
    return {key: value for _, key, value in lines}


def write(spark, given: dict[str, str], topic: str) -> None:
    rows = spark.range(5).selectExpr("cast(id as string) as value")
    rows.write.format("trilogue").options(**given).mode("append").save(topic)


def test_the_lines_of_the_file_are_options_of_source_and_sink(spark, data, tmp_path):
    given = options(data)
    write(spark, given, "secured")

    read = spark.read.format("trilogue").options(**given).load("secured")
    assert read.count() == 5
    query = run_available(
        spark.readStream.format("trilogue").options(**given, startingOffsets="earliest")
        .load("secured").select("value")
        .writeStream.format("trilogue").options(**given, topic="copy")
        .option("checkpointLocation", str(tmp_path))
    )  # fmt: skip
    assert query.exception() is None
    assert spark.read.format("trilogue").options(**given).load("copy").count() == 5

    password = (data / PASSWORD_FILE).read_text().strip()
    assert password not in read._jdf.queryExecution().toString()
    checkpoint = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert checkpoint
    assert not [path for path in checkpoint if password.encode() in path.read_bytes()]


def test_a_wrong_password_is_an_error_at_once_without_the_password(spark, data):
    right = (data / PASSWORD_FILE).read_text().strip()
    given = {key: value.replace(right, "hunter2") for key, value in options(data).items()}

    with pytest.raises(Exception, match="check sasl_username and sasl_password") as refused:
        spark.read.format("trilogue").options(**given).load("secured").count()
    assert "hunter2" not in str(refused.value)
    with pytest.raises(Exception, match="check sasl_username and sasl_password"):
        write(spark, given, "secured")


FLIGHT = {"type": "record", "name": "Flight", "fields": [{"name": "id", "type": "long"}]}


def write_flights(data: Path, topic: str, registry: dict[str, str]) -> None:
    """Write messages by confluent-kafka's own serializer, with its own login at the registry."""
    with SchemaRegistryClient(registry) as client:
        serializer = AvroSerializer(client, json.dumps(FLIGHT))
        lines = (data / "clients" / "librdkafka.conf").read_text().splitlines()
        producer = confluent_kafka.Producer(dict(line.split("=", 1) for line in lines))
        for number in range(5):
            context = SerializationContext(topic, MessageField.VALUE)
            producer.produce(topic, serializer({"id": number}, context))
        assert producer.flush(90) == 0


def test_a_registry_with_login_and_tls_gives_the_schemas(data, tmp_path):
    """The authorities of the Kafka connection are trusted, or those of an option of its own."""
    http = read_http_config(data / "clients" / "http.conf")
    registry = {"url": f"{http['server']}/schema-registry", "basic.auth.user.info": http["user"],
                "ssl.ca.location": str(data / "tls" / "ca.pem")}  # fmt: skip
    write_flights(data, "flights", registry)

    def read(**names: str) -> list[int]:
        """Return what a worker gives to Spark, of options that have come to it as bytes."""
        more = {f"schema.registry.{name}": text for name, text in names.items()}
        given = {"subscribe": "flights", "columns": "value", "payload": "avro"}
        parsed = ReadOptions.parse(options(data) | given | more)
        task = cloudpickle.dumps((parsed, resolve_payloads(parsed)))
        parsed, payload = cloudpickle.loads(task)
        batches = read_range(parsed, Range("flights", 0, 0, 5), payload)
        return [row["value"]["id"] for batch in batches for row in batch.to_pylist()]

    assert read(**registry) == list(range(5))
    del registry["ssl.ca.location"]
    assert read(**registry) == list(range(5))
    with pytest.raises(SchemaUnavailable, match="certificate verify failed"):
        read(**registry, **{"ssl.ca.location": str(Authority(tmp_path).certificate)})
    with pytest.raises(SchemaUnavailable, match="HTTP 401"):
        read(url=registry["url"])
    with pytest.raises(SchemaUnavailable, match="HTTP 401") as refused:
        read(**registry | {"basic.auth.user.info": "admin:hunter2"})
    assert "hunter2" not in str(refused.value)
    close_links(options(data)["kafka.bootstrap.servers"])
