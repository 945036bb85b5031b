"""The demo as a whole: required modules, its folder, exit codes."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from tests.server import clean_environment, command_line, run_trilogue
from tests.tools import require
from tests.waiting import wait_until
from trilogue.demo import command as verb
from trilogue.demo.server import _wait_until_ready, without_settings
from trilogue.demo.steps import DemoFailed
from trilogue.spark.local_session import find_java


def test_folder_with_other_files_is_refused_unchanged(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")

    result = run_trilogue("demo", "--output", str(tmp_path))

    assert result.returncode == 1
    assert "holds other files" in result.stdout
    assert "Traceback" not in result.stdout + result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_output_that_is_no_folder_is_refused_without_traceback(tmp_path):
    (tmp_path / "file").write_text("")

    result = run_trilogue("demo", "--output", str(tmp_path / "file"))

    assert result.returncode == 1
    assert "The demo failed" in result.stdout
    assert "Traceback" not in result.stdout + result.stderr


def test_its_own_folder_is_emptied_and_its_own_while_it_works(tmp_path):
    with verb._output_folder(tmp_path):
        (tmp_path / "data").mkdir()
        (tmp_path / "data" / "file").write_text("old")

    with verb._output_folder(tmp_path):
        assert [path.name for path in tmp_path.iterdir()] == [verb.MARK]
        with pytest.raises(DemoFailed, match="another demo"), verb._output_folder(tmp_path):
            pass
        with (tmp_path / verb.MARK).open() as mark, pytest.raises(BlockingIOError):
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_missing_module_is_reported_before_the_server_starts(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(verb, "CLIENT_MODULES", ("duckdb", "no_such_module"))

    with pytest.raises(typer.Exit) as ended:
        verb.demo(output=tmp_path)

    assert ended.value.exit_code == 1
    assert "no_such_module missing: pip install 'trilogue[demo]'" in capsys.readouterr().out
    assert not (tmp_path / "server.log").exists()


def test_missing_java_is_reported_before_the_server_starts(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("trilogue.spark.local_session.find_java", lambda _: None)

    with pytest.raises(typer.Exit):
        verb.demo(output=tmp_path)

    assert "Spark needs Java 17 or newer" in capsys.readouterr().out
    assert not (tmp_path / "server.log").exists()


def test_whatever_goes_wrong_is_one_line_and_a_log(tmp_path, monkeypatch, capsys):
    def fails(*_: object, **__: object) -> bool:
        raise ZeroDivisionError("first line\nsecond line")

    monkeypatch.setattr(verb, "run", fails)
    with pytest.raises(typer.Exit) as ended:
        verb.demo(output=tmp_path)

    output = capsys.readouterr().out
    assert ended.value.exit_code == 1
    assert "The demo failed: ZeroDivisionError: first line" in output
    assert "second line" not in output
    assert "Traceback" in (tmp_path / "demo.log").read_text()


def test_a_result_that_differs_is_a_failure(tmp_path, monkeypatch):
    monkeypatch.setattr(verb, "run", lambda *_, **__: False)

    with pytest.raises(typer.Exit) as ended:
        verb.demo(output=tmp_path)

    assert ended.value.exit_code == 1


def test_a_server_that_does_not_start_is_quoted(tmp_path):
    log = tmp_path / "server.log"
    with log.open("wb") as to:
        process = subprocess.Popen(
            [sys.executable, "-c", "print('starting'); print('the disk is on fire'); exit(3)"],
            stdout=to,
        )

        with pytest.raises(DemoFailed, match="ended at once, with code 3: the disk is on fire"):
            _wait_until_ready(process, tmp_path / "ready", log)


def test_settings_of_the_user_s_own_server_are_not_the_demo_s():
    given = {"TRILOGUE_DATA": "/precious", "HOME": "/h"}

    assert without_settings(given) == {"TRILOGUE_CONFIG": "", "HOME": "/h"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_demo_that_is_stopped_leaves_no_process(tmp_path, number):
    require("java", found=find_java(tmp_path))
    output = tmp_path / "output"
    process = subprocess.Popen(
        [*command_line("demo"), "--output", str(output)], stdout=subprocess.PIPE, text=True,
        env=clean_environment(), start_new_session=True,
    )  # fmt: skip
    pid = server_of(output)

    process.send_signal(number)
    message, _ = process.communicate(timeout=110)

    assert process.returncode == verb.INTERRUPTED
    assert "Stopped; no process of the demo is left." in message
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


SIGNAL_IN_A_CALLBACK = """
import os, signal, threading, time, weakref
from trilogue.demo.command import _Stopped, _interruptible

class Thing: ...

def callback(_reference):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.01)

try:
    with _interruptible(threading.Event()):
        thing = Thing()
        reference = weakref.ref(thing, callback)
        del thing
        time.sleep(300)
except _Stopped:
    print("stopped")
"""


def test_a_signal_that_comes_in_a_callback_stops_the_demo():
    command = [sys.executable, "-c", SIGNAL_IN_A_CALLBACK]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=True)

    assert done.stdout == "stopped\n"


def server_of(output: Path) -> int:
    """The process id of the demo's server, once it is ready."""
    import json

    ready = output / "ready.json"
    wait_until(ready.exists, "the start of the demo's server")
    return int(json.loads(ready.read_text())["pid"])


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_the_whole_demo_twice_in_one_folder(tmp_path):
    require("java", found=find_java(tmp_path))
    output = tmp_path / "output"

    for _ in range(2):
        result = run_trilogue("demo", "--output", str(output), timeout=400)

        assert result.returncode == 0, result.stdout + result.stderr
        assert "Every figure equals the data set's own." in result.stdout
        lines = [line for line in result.stdout.splitlines() if str(tmp_path) not in line]
        assert all(len(line) <= 80 for line in lines)
        assert result.stderr == ""
        assert (output / "report.html").stat().st_size > 50_000
