#!/usr/bin/env bash
# Makes a virtual environment where Debian's python3 may come without its venv module.
set -euo pipefail
python=$1 venv=$2
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  echo "Trilogue needs Python 3.11 or newer; set PYTHON=... ($("$python" --version) found)" >&2
  exit 1
}
if ! "$python" -m venv "$venv" 2>/dev/null; then
  rm -rf "$venv"
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing python3-venv" >&2
    apt-get update -qq && apt-get install -y -qq python3-venv >/dev/null
    "$python" -m venv "$venv"
  else
    echo "python3 has no venv module: install it first (Debian: apt-get install python3-venv)" >&2
    exit 1
  fi
fi
"$venv/bin/python" -m pip install -q -U 'pip>=25.1' 'setuptools>=77' 'cython>=3.1'
