"""The table, and how its sources win over each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from trilogue.broker.settings.values import format_value
from trilogue.node.settings.sources import load_settings
from trilogue.node.settings.table import BY_KEY, LISTENERS, TABLE, SettingsError, environment_name


def load(**sources):
    return load_settings(**{"environment": {}, **sources})


def config(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "trilogue.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.key)
def test_every_default_is_accepted_and_reads_back(row):
    value = row.parse(row.default)

    assert value == row.parse(format_value(row.kind, value))


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.key)
def test_every_setting_has_a_description(row):
    assert row.doc.endswith(".")
    assert row.key == row.key.lower()


def test_stronger_sources_win_and_each_value_knows_its_origin(tmp_path):
    file = config(
        tmp_path,
        'log.level = "debug"\n[topics]\ndefault-partitions = 2\nauto-create = false\n'
        'retention = "1d"\n[listen]\nkafka = "127.0.0.1:1"\n',
    )
    environment = {
        "TRILOGUE_TOPICS_DEFAULT_PARTITIONS": "3",
        "TRILOGUE_TOPICS_RETENTION": "2d",
        "TRILOGUE_LISTEN_KAFKA": "127.0.0.1:2",
    }

    settings = load(
        environment=environment,
        config_file=file,
        assignments=["topics.retention=3d", "listen.kafka=127.0.0.1:3"],
        flags=[("listen.kafka", "127.0.0.1:4", "--listen kafka")],
    )

    assert (settings.text("log.level"), settings.origin("log.level")) == ("debug", f"file {file}")
    assert settings.switch("topics.auto-create") is False
    assert settings.number("topics.default-partitions") == 3
    assert (
        settings.origin("topics.default-partitions")
        == "environment TRILOGUE_TOPICS_DEFAULT_PARTITIONS"
    )
    assert settings.number("topics.retention") == 3 * 86_400_000
    assert settings.origin("topics.retention") == "--set topics.retention"
    assert settings.text("listen.kafka") == "127.0.0.1:4"
    assert settings.origin("listen.kafka") == "--listen kafka"
    assert settings.origin("log.format") == "default"


def test_config_file_may_be_named_by_the_environment(tmp_path):
    file = config(tmp_path, "topics.default-partitions = 7")

    settings = load(environment={"TRILOGUE_CONFIG": str(file)})

    assert settings.number("topics.default-partitions") == 7


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        ({"assignments": ["topics.default-partition=3"]}, "did you mean topics.default-partitions"),
        ({"assignments": ["topics.default-partitions"]}, "expected KEY=VALUE"),
        ({"assignments": ["topics.default-partitions=0"]}, "must be 1 to 10000"),
        ({"assignments": ["topics.default-partitions="]}, "must not be empty"),
        ({"assignments": ["data= "]}, "must not be empty"),
        ({"assignments": ["topics.auto-create=maybe"]}, "expected true or false"),
        ({"assignments": ["log.level=loud"]}, "expected one of debug, info"),
        ({"assignments": ["tail.limit=10 apples"]}, "not 'apples'"),
        ({"assignments": ["journal.file-age=1m"]}, "not 'm'"),
        ({"assignments": ["tail.limit=64MiB"]}, "at least twice"),
        ({"assignments": ["groups.session-timeout-max=5s"]}, "below"),
        ({"assignments": ["groups.share-record-lock=10s"]}, "below"),
        ({"assignments": ["listen.tubemq-broker=off"]}, "sends its clients there"),
        ({"assignments": ["listen.kafka=localhost"]}, "is not HOST:PORT"),
        (
            {"assignments": [f"listen.{door}=off" for door in LISTENERS]},
            "every listener is off",
        ),
        ({"environment": {"TRILOGUE_LOG_LEVL": "info"}}, "did you mean TRILOGUE_LOG_LEVEL"),
    ],
)
def test_invalid_setting_is_refused_with_the_reason(sources, message):
    with pytest.raises(SettingsError, match=message):
        load(**sources)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[topics]\nauto-crate = true", "did you mean topics.auto-create"),
        ("[topics]\nretention = 1.5", "expected a text, number or boolean"),
        ("[topics]\nretention = [1]", "expected a text, number or boolean"),
        ("topics = ", "config file"),
    ],
)
def test_config_file_with_a_fault_is_refused(tmp_path, text, message):
    with pytest.raises(SettingsError, match=message):
        load(config_file=config(tmp_path, text))


def test_missing_config_file_is_refused(tmp_path):
    with pytest.raises(SettingsError, match="No such file"):
        load(config_file=tmp_path / "none.toml")


def test_environment_of_a_kubernetes_service_called_trilogue_is_no_setting():
    environment = {
        "TRILOGUE_SERVICE_HOST": "10.0.0.1",
        "TRILOGUE_SERVICE_PORT_KAFKA": "9092",
        "TRILOGUE_PORT": "tcp://10.0.0.1:9092",
        "TRILOGUE_PORT_9092_TCP_ADDR": "10.0.0.1",
    }

    assert load(environment=environment).origin("listen.kafka") == "default"


def test_data_directory_follows_the_xdg_rules():
    assert load(environment={"XDG_DATA_HOME": "/srv/data"}).text("data") == "/srv/data/trilogue"
    assert load(environment={"XDG_DATA_HOME": "relative"}).text("data") == str(
        Path("~/.local/share/trilogue").expanduser()
    )


def test_every_key_has_an_environment_variable_of_its_own():
    assert len(BY_KEY) == len({environment_name(row.key) for row in TABLE})
