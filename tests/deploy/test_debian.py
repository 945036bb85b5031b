"""The Debian package, installed in a copy-on-write view of this machine, used, removed."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tools import require, require_program, require_root

ROOT = Path(__file__).resolve().parents[2]
BUILD_S, RUN_S = 1800, 300
SERVE = (
    "setpriv --reuid=trilogue --regid=trilogue --clear-groups "
    "trilogue serve --data /var/lib/trilogue "
    "--listen kafka=127.0.0.1:0 --listen http=127.0.0.1:0 --listen pulsar=off "
    "--listen tubemq-master=off --listen tubemq-broker=off --ready-file /run/trilogue/ready"
)
USE = f"""
set -e
install -d -o trilogue /run/trilogue
{SERVE} >/run/trilogue/output 2>&1 &
server=$!
trap 'kill $server 2>/dev/null || true' EXIT
for _ in $(seq 600); do test -e /run/trilogue/ready && break; sleep 0.2; done
kafka=$(python3 -c 'import json; print(json.load(open("/run/trilogue/ready"))["doors"]["kafka"])')
echo hello | trilogue produce orders --server "$kafka"
trilogue consume orders --server "$kafka" --count 1
kill $server
wait $server
"""

pytestmark = [pytest.mark.long, pytest.mark.timeout(BUILD_S + RUN_S)]


@pytest.fixture(scope="module")
def package() -> Path:
    require_program("dpkg-deb")
    require("python3-dev", found=list(Path("/usr/include").glob("python3.*/Python.h")))
    done = subprocess.run(
        ["bash", "tools/build-deb.sh"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=BUILD_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return ROOT / done.stdout.splitlines()[-1].split(":")[0]


@pytest.fixture
def clean_root(tmp_path: Path) -> Iterator[Path]:
    """A root in which changes go to a folder of memory, and not to this machine."""
    require_root()
    layers, root = tmp_path / "layers", tmp_path / "root"
    layers.mkdir()
    root.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", layers], check=True)
    for each in ("upper", "work"):
        (layers / each).mkdir()
    options = f"lowerdir=/,upperdir={layers}/upper,workdir={layers}/work"
    try:
        mounted = subprocess.run(
            ["mount", "-t", "overlay", "overlay", "-o", options, root], check=False
        )
        require("overlayfs", found=mounted.returncode == 0)
        try:
            yield root
        finally:
            subprocess.run(["umount", "-l", root], check=True)
    finally:
        subprocess.run(["umount", "-l", layers], check=True)


def run(root: Path, script: str) -> str:
    """Run a script of the shell in the root; return what it printed."""
    done = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "chroot", root, "/bin/sh", "-ec",
         f"mount -t tmpfs tmpfs /run; export PATH=/usr/sbin:/usr/bin:/sbin:/bin; {script}"],
        capture_output=True, text=True, timeout=RUN_S, check=False, cwd="/",
        env={"HOME": "/root", "LANG": "C.UTF-8"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_an_installed_package_serves_and_leaves_its_data(package: Path, clean_root: Path):
    (clean_root / "tmp" / package.name).write_bytes(package.read_bytes())

    run(clean_root, f"dpkg -i /tmp/{package.name}")

    assert "trilogue 0" in run(clean_root, "trilogue version")
    assert "compiled" in run(clean_root, "trilogue doctor")
    assert "hello" in run(clean_root, USE)
    for page in ("trilogue", "trilogue-serve", "trilogue-topics-create"):
        assert (clean_root / f"usr/share/man/man1/{page}.1.gz").exists()
    assert (
        "/usr/bin/trilogue" in (clean_root / "usr/lib/systemd/system/trilogue.service").read_text()
    )

    run(clean_root, "dpkg --purge trilogue")

    assert not (clean_root / "usr/lib/trilogue").exists()
    assert not (clean_root / "etc/trilogue/trilogue.toml").exists()
    assert list((clean_root / "var/lib/trilogue").iterdir())
