"""A TubeMQ signature is accepted once, by all nodes of a directory and over their starts."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway.tubemq.auth.auth_rig import NOW_MS, AuthenticationRig
from trilogue.broker.errors import AuthenticationFailed
from trilogue.gateway.tubemq.auth.signatures import SIGNATURE_WINDOW_MS
from trilogue.node import used_signatures
from trilogue.node.used_signatures import BUCKET_SIZE, BUCKETS, SLOTS, UsedSignatures

KEY = b"a key that the nodes share"
SIGNATURE = ("alice", NOW_MS, 7)
HOLD_A_LOCK = """
import os, sys
descriptor = os.open(sys.argv[1], os.O_RDWR)
os.lockf(descriptor, os.F_LOCK, 0)
print("locked", flush=True)
sys.stdin.read()
"""


class Nodes:
    """The nodes of a directory, each with its own memory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._opened: list[UsedSignatures] = []

    def open(self) -> UsedSignatures:
        self._opened.append(UsedSignatures(self.path, KEY))
        return self._opened[-1]

    def close(self) -> None:
        for each in self._opened:
            each.close()


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    made = Nodes(tmp_path / "signatures")
    yield made
    made.close()


def test_a_signature_that_one_node_accepted_is_refused_by_the_others_and_after_a_start(
    nodes: Nodes,
):
    rigs = [AuthenticationRig() for _ in range(2)]
    for rig in rigs:
        rig.rules._signatures = nodes.open()
    signed = rigs[0].signed()
    rigs[0].request(signed)

    for rig in rigs:
        with pytest.raises(AuthenticationFailed, match="used before"):
            rig.request(signed)
        assert "used before" in str(rig.lines[-1]["reason"])
        rig.request(rig.signed(nonce=rigs.index(rig) + 100))
    with pytest.raises(AuthenticationFailed, match="used before"):
        nodes.open().add(SIGNATURE, NOW_MS)


def test_the_place_of_a_signature_is_free_when_its_time_is_over(nodes: Nodes):
    nodes.open().add(SIGNATURE, NOW_MS)
    later = NOW_MS + 2 * SIGNATURE_WINDOW_MS

    with pytest.raises(AuthenticationFailed, match="used before"):
        nodes.open().add(SIGNATURE, later)
    nodes.open().add(SIGNATURE, later + 1)
    assert nodes.path.stat().st_size == BUCKETS * BUCKET_SIZE


def test_a_full_bucket_refuses_and_does_not_forget(nodes: Nodes, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(used_signatures, "BUCKETS", 1)
    node = nodes.open()
    for nonce in range(SLOTS):
        node.add(("alice", NOW_MS, nonce), NOW_MS)

    with pytest.raises(AuthenticationFailed, match="too many"):
        node.add(("alice", NOW_MS, SLOTS), NOW_MS)
    with pytest.raises(AuthenticationFailed, match="used before"):
        nodes.open().add(("alice", NOW_MS, 0), NOW_MS)


def test_a_node_that_stops_with_the_lock_holds_no_other(nodes: Nodes):
    node = nodes.open()
    program = [sys.executable, "-c", HOLD_A_LOCK, str(nodes.path)]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"locked\n"
        with pytest.raises(AuthenticationFailed, match="too many"):
            node.add(SIGNATURE, NOW_MS)
        other.kill()
    nodes.open().add(SIGNATURE, NOW_MS)


def test_a_full_disk_keeps_no_client_out(nodes: Nodes, monkeypatch: pytest.MonkeyPatch):
    def fail(*_arguments: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    node = nodes.open()
    monkeypatch.setattr(os, "pwrite", fail)
    node.add(SIGNATURE, NOW_MS)

    with pytest.raises(AuthenticationFailed, match="used before"):
        node.add(SIGNATURE, NOW_MS)


def test_the_file_is_private_and_no_link(nodes: Nodes, tmp_path: Path):
    nodes.open()
    assert nodes.path.stat().st_mode & 0o777 == 0o600

    (tmp_path / "link").symlink_to(nodes.path)
    with pytest.raises(OSError, match="symbolic"):
        UsedSignatures(tmp_path / "link", KEY)
