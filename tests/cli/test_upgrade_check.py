"""`trilogue upgrade-check` on data of older, of this, and of newer versions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.log.old_data import FIXTURES, unpacked
from tests.log.test_fixtures import (
    digests,
    newer_directory,
    newer_journal,
    newer_manifest,
    newer_meta,
    newer_meta_in_its_log,
)
from tests.server import run_trilogue
from trilogue.meta.operations import FORMAT_VERSION

OLDEST = FIXTURES[0]


def check(data: Path, *arguments: str) -> tuple[int, str]:
    done = run_trilogue("upgrade-check", "--data", str(data), *arguments)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: path.name)
def test_data_of_an_older_version_is_served_and_stays_as_it_is(fixture: Path, tmp_path: Path):
    data = unpacked(fixture, tmp_path)
    before = digests(data)

    code, output = check(data)

    assert code == 0
    assert f"becomes {FORMAT_VERSION} with the next start" in output
    assert "trilogue backup" in output
    assert digests(data) == before


def test_json_names_each_part(tmp_path: Path):
    code, output = check(unpacked(OLDEST, tmp_path), "--json")

    found = {each["part"]: each["found"] for each in json.loads(output)}
    assert code == 0
    assert found.keys() == {"directory", "metadata", "journal", "segments", "manifest"}
    assert found["metadata"] < FORMAT_VERSION


@pytest.mark.parametrize(
    "make_newer",
    [newer_directory, newer_meta, newer_meta_in_its_log, newer_manifest, newer_journal],
)
def test_data_of_a_newer_version_is_named(tmp_path: Path, make_newer: Callable[[Path], str]):
    data = unpacked(OLDEST, tmp_path)
    make_newer(data)

    code, output = check(data)

    assert code == 1
    assert "use the version that wrote it" in output
    assert "cannot serve" in output


def test_damage_is_named(tmp_path: Path):
    data = unpacked(OLDEST, tmp_path)
    (data / "format").write_text("something else")
    (data / "segments" / "manifest.json").write_bytes(b"{")
    (data / "restoring").touch()

    code, output = check(data)

    assert code == 1
    for reason in ("it is damaged", "cannot be read", "run it again"):
        assert reason in output


def test_an_empty_directory_and_a_wrong_setting(tmp_path: Path):
    config = tmp_path / "trilogue.toml"
    config.write_text("[topics]\nno-such-setting = 1\n")

    assert check(tmp_path) == (0, f"{tmp_path}: no data yet\n")
    code, output = check(tmp_path, "--config", str(config))
    assert code == 2
    assert "no-such-setting" in output
