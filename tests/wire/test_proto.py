"""The modules generated from .proto files are those of the files as they are."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.tools import require

ROOT = Path(__file__).resolve().parents[2]
PROTOC = ROOT / "build/protoc/bin/python"
PROTOS = sorted(path.relative_to(ROOT) for path in ROOT.glob("src/trilogue/wire/*/*.proto"))


def test_generated_modules_are_those_of_the_present_proto(tmp_path: Path):
    require("build/protoc (tools/make-proto.sh tool)", found=PROTOC.exists())
    subprocess.run(
        [PROTOC, "-W", "ignore", "-m", "grpc_tools.protoc", "-Isrc", f"--python_out={tmp_path}",
         f"--pyi_out={tmp_path}", *PROTOS],
        cwd=ROOT, check=True, timeout=60,
    )  # fmt: skip

    made = {path.relative_to(tmp_path): path.read_bytes() for path in tmp_path.rglob("*_pb2.py*")}

    assert len(made) == 2 * len(PROTOS) >= 8
    assert made == {path: (ROOT / "src" / path).read_bytes() for path in made}
