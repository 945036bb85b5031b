"""The command line as people type it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.server import run_trilogue
from trilogue import __version__
from trilogue.cli.verbs import VERBS

HEAVY = {
    "google.protobuf",
    "msgspec",
    "starlette",
    "http.client",
    "pydantic",
    "numpy",
    "pyarrow",
}
HELP_MODULES_MAX = 400
VERSION_MODULES_MAX = 120
DOCS = Path(__file__).parents[2] / "docs" / "reference"


def test_help_lists_every_verb_with_a_sentence():
    result = run_trilogue("--help")

    assert result.returncode == 0
    for verb in VERBS:
        assert verb in result.stdout


def test_help_loads_no_heavy_module():
    """Of time: about 0.2 s of CPU, most of it for these."""
    loaded = loaded_modules("--help")

    assert not loaded & HEAVY
    assert "typer" in loaded
    assert len(loaded) < HELP_MODULES_MAX


def test_version_loads_little_more_than_python():
    loaded = loaded_modules("version")

    assert not loaded & (HEAVY | {"typer", "rich"})
    assert len(loaded) < VERSION_MODULES_MAX


def loaded_modules(*arguments: str) -> set[str]:
    """Return the names of all modules that a call of the command line loads."""
    result = run_trilogue(*arguments, environment={"PYTHONPROFILEIMPORTTIME": "1"})
    assert result.returncode == 0
    return {
        line.rpartition("|")[2].strip()
        for line in result.stderr.splitlines()
        if line.startswith("import time:")
    }


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(verb):
    result = run_trilogue(verb, "--help")

    assert result.returncode == 0
    assert f"trilogue {verb}" in result.stdout


@pytest.mark.parametrize("arguments", [("version",), ("--version",)])
def test_version_is_printed(arguments):
    assert run_trilogue(*arguments).stdout == f"trilogue {__version__}\n"


def test_an_unknown_verb_is_refused():
    result = run_trilogue("serv")

    assert result.returncode == 2
    assert "serv" in result.stderr


def test_config_shows_value_and_origin(tmp_path):
    file = tmp_path / "trilogue.toml"
    file.write_text("[topics]\nretention = '1d'\n")

    result = run_trilogue(
        "config", "--config", str(file), "--set", "log.level=debug", "--listen",
        "kafka=[::1]:9099", "--json", environment={"TRILOGUE_TAIL_LIMIT": "1GiB"},
    )  # fmt: skip

    shown = json.loads(result.stdout)
    assert shown["topics.retention"] == {"value": 86_400_000, "origin": f"file {file}"}
    assert shown["log.level"] == {"value": "debug", "origin": "--set log.level"}
    assert shown["listen.kafka"] == {"value": "[::1]:9099", "origin": "--listen kafka"}
    assert shown["tail.limit"] == {
        "value": 1 << 30, "origin": "environment TRILOGUE_TAIL_LIMIT",
    }  # fmt: skip
    assert shown["log.format"] == {"value": "text", "origin": "default"}


def test_config_prints_a_table_for_people():
    result = run_trilogue("config", "--set", "tail.limit=1GiB")

    lines = [line.split() for line in result.stdout.splitlines()]
    assert lines[0] == ["setting", "value", "origin"]
    assert ["tail.limit", "1GiB", "--set", "tail.limit"] in lines


def test_a_wrong_setting_ends_with_one_line_and_exit_code_2():
    result = run_trilogue("config", "--set", "tail.limits=1GiB")

    assert result.returncode == 2
    assert result.stderr == (
        "trilogue: --set tail.limits: unknown setting 'tail.limits'; did you mean tail.limit?\n"
    )


def test_reference_of_settings_matches_the_settings_table():
    written = (DOCS / "settings.md").read_text()

    assert written == run_trilogue("config", "--markdown").stdout, (
        "run `trilogue config --markdown > docs/reference/settings.md`"
    )


def test_reference_of_the_command_line_names_every_verb():
    text = (DOCS / "cli.md").read_text()

    missing = [verb for verb in VERBS if f"## trilogue {verb}\n" not in text]

    assert missing == [], "docs/reference/cli.md has a section for each verb"


def test_doctor_reports_version_format_and_compiled_modules(tmp_path):
    (tmp_path / "format").write_text("trilogue data\nformat 1\n")

    result = run_trilogue("doctor", "--data", str(tmp_path), "--json")

    found = json.loads(result.stdout)
    assert found["trilogue"] == __version__
    assert found["data format"] == "trilogue data format 1"
    assert found["data in use"] == "no"
    assert found["trilogue.entry.walk"] in {"compiled", "plain Python"}


def test_codec_prints_the_generated_code():
    result = run_trilogue("codec", "fetch", "11")

    assert result.returncode == 0
    assert "max_wait_ms" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing",), "no message 'nothing'"),
        (("fetch", "99"), "FetchRequest has the versions 0 to"),
        (("fetch", "--way", "sideways"), "one of decode, encode, gather"),
    ],
)
def test_codec_refuses_invalid_arguments(arguments, message):
    result = run_trilogue("codec", *arguments)

    assert result.returncode == 2
    assert message in result.stderr


def test_codec_lists_the_messages():
    assert "  1 fetch " in run_trilogue("codec").stdout


@pytest.mark.parametrize(
    ("options", "variable", "tried"),
    [
        ((), "", "127.0.0.1:3"),
        (("--server", "127.0.0.1:4"), "", "127.0.0.1:4"),
        ((), "127.0.0.1:5", "127.0.0.1:3"),
    ],
)
def test_the_server_of_a_client_file_yields_to_the_option(tmp_path, options, variable, tried):
    file = tmp_path / "client.conf"
    file.write_text("bootstrap.servers=127.0.0.1:3\n")

    result = run_trilogue(
        "topics", "list", "--config", str(file), *options,
        environment={"TRILOGUE_BOOTSTRAP": variable} if variable else {},
    )  # fmt: skip

    assert result.returncode == 3
    assert f"no Kafka server responds at {tried}: " in result.stderr


def test_backups_of_a_folder_that_does_not_exist_are_not_listed_as_none(tmp_path: Path):
    result = run_trilogue("restore", str(tmp_path / "mistyped"), "--list")

    assert result.returncode == 1
    assert "there is no folder" in result.stderr
    assert result.stdout == ""
