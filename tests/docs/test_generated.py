"""Generated parts are those of the present code, with figures of result files only."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tools.docs.__main__ import MAKERS
from tools.docs.blocks import MarkError, fill, names, table
from tools.docs.numbers import NONE, numbers

from tests.docs.page import PAGES, name


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_generated_parts_are_current(page: Path):
    text = page.read_text()

    assert text == fill(text, MAKERS), "run `python -m tools.docs`"


def test_every_maker_is_requested_somewhere():
    wanted = {each for page in PAGES for each in names(page.read_text())}

    assert set(MAKERS) == wanted


def test_text_around_a_generated_part_stays():
    text = "before\n<!-- generated: a (by hand) -->\nold\n<!-- end of a -->\nafter\n"

    filled = fill(text, {"a": lambda: "new"})

    assert filled.startswith("before\n<!-- generated: a ")
    assert "\n\nnew\n\n" in filled
    assert filled.endswith("<!-- end of a -->\nafter\n")
    assert filled == fill(filled, {"a": lambda: "new"})


def test_marks_that_do_not_fit_are_refused():
    with pytest.raises(MarkError):
        fill("<!-- generated: a () -->\n<!-- end of b -->", {"a": str, "b": str})
    with pytest.raises(MarkError):
        fill("<!-- generated: a () -->\n<!-- end of a -->", {})


def test_a_bar_does_not_end_a_cell():
    assert table(["a"], [["x|y"]]).splitlines()[2] == "| x\\|y |"


def result(date: str, p50_ms: float, *, passed: bool = True) -> dict[str, object]:
    return {
        "date": f"{date}T10:00:00+00:00",
        "machine": {
            "cpus": 2, "cpu": "a processor", "memory_gib": 24, "file_system": "ext4",
            "python": "3.11.7",
        },
        "versions": {"kafka": "3.9.1"},
        "durability": "fsync before every ack on both sides",
        "rounds": 3,
        "rows": [
            {
                "name": "one-in-flight",
                "median": {"kafka": {"p50_ms": 0.9}, "trilogue": {"p50_ms": p50_ms}},
                "gates": [
                    {"label": "p50 <= 0.3 ms", "got": p50_ms, "wanted": 0.3, "passed": passed}
                ],
            }
        ],
    }  # fmt: skip


def test_without_a_result_no_number_is_shown(tmp_path: Path):
    assert numbers(tmp_path) == NONE


def test_the_newest_result_is_shown_with_its_conditions(tmp_path: Path):
    (tmp_path / "b.json").write_text(json.dumps(result("2026-01-02", 0.21)))
    (tmp_path / "a.json").write_text(json.dumps(result("2026-01-03", 0.25)))
    (tmp_path / "c.json").write_text(json.dumps({"date": "2027", "rows": {"another": {}}}))

    shown = numbers(tmp_path)

    assert "| one-in-flight | p50 ms | 0.900 | 0.250 |" in shown
    assert "2026-01-03; 2 cores (a processor)" in shown
    assert "All 1 gates of this run were passed." in shown
    assert "a.json" in shown


def test_a_row_that_the_newest_run_does_not_have_is_shown_of_an_older_one(tmp_path: Path):
    older = result("2026-01-02", 0.21)
    older["rows"].append({**older["rows"][0], "name": "groups"})
    older["rows"].append({**older["rows"][0], "name": "given-up"})
    (tmp_path / "a.json").write_text(json.dumps(older))
    (tmp_path / "b.json").write_text(json.dumps(result("2026-01-03", 0.25)))

    shown = numbers(tmp_path)

    assert "| one-in-flight | p50 ms | 0.900 | 0.250 |" in shown
    assert "| groups | p50 ms | 0.900 | 0.210 |" in shown
    assert "--rows groups`" in shown
    assert "0.210 |" not in shown.split("| groups")[0]
    assert "given-up" not in shown


def test_each_version_of_a_server_has_its_newest_rows(tmp_path: Path):
    newer = result("2026-01-03", 0.25)
    newer["versions"] = {**newer["versions"], "kafka": "9.9.9"}
    older = (("a", result("2026-01-01", 0.2)), ("b", result("2026-01-02", 0.21)))
    for letter, each in older:
        (tmp_path / f"{letter}.json").write_text(json.dumps(each))
    (tmp_path / "c.json").write_text(json.dumps(newer))

    shown = numbers(tmp_path)

    assert shown.count("| one-in-flight |") == 2
    assert "| one-in-flight | p50 ms | 0.900 | 0.250 |" in shown
    assert "| one-in-flight | p50 ms | 0.900 | 0.210 |" in shown
    assert shown.count("--rows one-in-flight --kafka-version 9.9.9`") == 1


def test_a_gate_that_was_missed_is_reported(tmp_path: Path):
    (tmp_path / "a.json").write_text(json.dumps(result("2026-01-03", 0.5, passed=False)))

    shown = numbers(tmp_path)

    assert "0 of 1 gates were passed; missed: one-in-flight: p50 <= 0.3 ms" in shown
    assert "(got 0.5, wanted 0.3)" in shown
