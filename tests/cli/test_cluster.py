"""Verbs against a cluster: without a server, the number of loaded modules, and completion."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys

import pytest

from tests.cli.kafka_cli import Shell
from tests.tools import require_program
from trilogue.cli.cluster import suggest_names
from trilogue.cli.completion import SCRIPTS
from trilogue.cli.verbs import VERBS
from trilogue.node.settings.sources import load_settings

NO_SERVER = Shell("127.0.0.1:1", http="127.0.0.1:1")
ASKING = [
    ("topics", "list"),
    ("topics", "describe", "a"),
    ("produce", "a"),
    ("consume", "a"),
    ("groups", "list"),
    ("transactions", "list"),
    ("subscriptions", "list"),
    ("doctor", "--server", "127.0.0.1:1"),
]


@pytest.mark.parametrize("arguments", ASKING, ids=lambda one: " ".join(one[:2]))
def test_unreachable_server_error_advises_what_to_do(arguments):
    detail = NO_SERVER.refused(*arguments, code=3)

    assert "no Kafka server responds at 127.0.0.1:1" in detail
    assert "no server answered" not in detail
    assert "trilogue serve" in detail
    assert "TRILOGUE_BOOTSTRAP" in detail


@pytest.mark.parametrize(
    "arguments",
    [
        ("topics", "alter", "a"),
        ("topics", "create", "a", "--set", "novalue"),
        ("topics", "trim", "a", "--before", "soon"),
        ("produce", "a", "--acks", "2"),
        ("produce", "a", "--codec", "zip"),
        ("produce", "a", "/no/such/file"),
        ("consume", "a", "--from", "soon"),
        ("consume", "a", "--json", "--keys"),
        ("consume", "a", "--last", "3", "--group", "g"),
        ("consume", "a", "--group", "g", "--from", "-1h"),
        ("consume", "a", "--follow", "--until", "3"),
        ("groups", "reset", "g"),
        ("groups", "reset", "g", "--to", "end"),
        ("groups", "reset", "g", "--to", "end", "--shift-by", "1", "-t", "a"),
        ("completion", "tcsh"),
        ("doctor", "--write"),
        ("topics", "list", "--server", "a:b:c"),
    ],
    ids=" ".join,
)
def test_a_wrong_command_line_ends_in_exit_code_2_before_any_server_is_contacted(arguments):
    assert "trilogue: " in NO_SERVER.refused(*arguments, code=2)


def test_names_that_are_near_are_offered():
    assert suggest_names("ordrs", ["orders", "planes"]) == "; did you mean orders?"
    assert suggest_names("x", ["orders"]) == ""


def test_environment_variables_of_the_command_line_are_not_settings():
    load_settings(environment={"TRILOGUE_BOOTSTRAP": "a:1", "TRILOGUE_HTTP": "a:2", "HOME": "/"})


def test_verbs_options_and_values_are_completed():
    def found(*words: str) -> list[str]:
        return [line.partition("\t")[0] for line in NO_SERVER.lines("complete", "--words", *words)]

    assert found("") == sorted(VERBS)
    assert found("topics", "d") == ["delete", "describe"]
    assert found("topics", "create", "a", "--part") == ["--partitions"]
    assert found("produce", "a", "--codec", "z") == ["zstd"]
    assert found("produce", "a", "--codec", "zstd", "") == [":files"]
    assert found("backup", "") == [":files"]
    assert found("restore", "") == [":files"]
    assert found("completion", "f") == ["fish"]
    assert found("codec", "list_o") == ["list_offsets"]
    assert found("nothing", "") == []
    assert found("topics", "nothing", "") == []


def test_a_cluster_that_does_not_answer_completes_nothing():
    assert NO_SERVER.lines("complete", "--words", "consume", "") == []
    assert NO_SERVER.lines("complete", "--words") == []


def test_bash_has_words_broken_at_colons():
    line = "trilogue produce x --server=127"

    assert NO_SERVER.lines("complete", "--line", line) == []
    assert NO_SERVER.lines("complete", "--line", "trilogue 'top") == []
    assert NO_SERVER.lines("complete", "--line", "trilogue ")[0].startswith("acls\t")


@pytest.mark.parametrize("shell", SCRIPTS)
def test_each_shell_gets_a_script(shell):
    assert "trilogue complete" in NO_SERVER.run("completion", shell).stdout


@pytest.fixture
def trilogue_folder(tmp_path):
    """A folder with a program `trilogue`, for a shell's path."""
    trilogue = tmp_path / "trilogue"
    trilogue.write_text(f'#!/bin/sh\nexec {sys.executable} -m trilogue.cli.main "$@"\n')
    trilogue.chmod(0o755)
    return tmp_path


def test_bash_completes_with_its_script(trilogue_folder):
    program = (
        f"PATH={trilogue_folder}:$PATH\nsource <(trilogue completion bash)\n"
        'COMP_LINE="trilogue topics de"; COMP_POINT=${#COMP_LINE}\n'
        'COMP_WORDS=(trilogue topics de); COMP_CWORD=2; _trilogue; echo "${COMPREPLY[@]}"'
    )

    body = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True)

    assert body.stdout == "delete describe\n"


@pytest.mark.full
def test_fish_completes_with_its_script(trilogue_folder):
    require_program("fish")
    (trilogue_folder / "backups").mkdir()
    program = (
        f"set PATH {trilogue_folder} $PATH; trilogue completion fish | source\n"
        f'complete -C "trilogue topics de"; complete -C "trilogue backup {trilogue_folder}/ba"'
    )

    body = subprocess.run(
        ["fish", "--no-config", "-c", program], capture_output=True, text=True, check=True
    )

    words = [line.partition("\t")[0] for line in body.stdout.splitlines()]
    assert words == ["delete", "describe", f"{trilogue_folder}/backups/"]


@pytest.mark.full
def test_zsh_completes_with_its_script(trilogue_folder):
    """A terminal: zsh completes at no other place."""
    require_program("zsh")
    (trilogue_folder / "backups").mkdir()
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        ["zsh", "-f", "-i"], stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        env={**os.environ, "TERM": "dumb", "PATH": f"{trilogue_folder}:{os.environ['PATH']}"},
    ) as shell:  # fmt: skip
        os.close(theirs)
        output = ""

        def type_until(text: str, expected: str) -> None:
            nonlocal output
            output = ""
            os.write(ours, text.encode())
            while expected not in output:
                readable, _, _ = select.select([ours], [], [], 60)
                assert readable, output
                output += os.read(ours, 65_536).decode(errors="replace")

        try:
            type_until("unsetopt zle_bracketed_paste; PS1='$(:)>'; echo rea''dy\n", "ready\r\n")
            type_until("autoload -U compinit; compinit -u -D; echo lo''aded\n", "loaded\r\n")
            type_until("source <(trilogue completion zsh); echo sour''ced\n", "sourced\r\n")
            type_until("trilogue topics de\t", "describe")
            assert "delete" in output
            type_until("\x15", "")
            type_until(f"trilogue backup {trilogue_folder}/ba\t", "ckups/")
        finally:
            shell.kill()
            os.close(ours)


def test_a_position_that_is_shared_is_not_there_yet():
    assert "cannot share a position yet" in NO_SERVER.refused("subscriptions", "share")
