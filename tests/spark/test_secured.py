"""The source and the sink at a secured server, with the options that `serve --secure` wrote."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server import start_server
from tests.spark.rooms import run_available
from trilogue.client.properties import read_keys

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
