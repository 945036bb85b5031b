#!/usr/bin/env bash
# Makes a virtual environment, also where Debian's python3 comes without its venv module.
# usage: tools/make-venv.sh PYTHON DIRECTORY
set -euo pipefail
python=$1 venv=$2

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

if ! new_enough "$python"; then
  for other in python3.14 python3.13 python3.12 python3.11; do
    if new_enough "$other"; then python=$other && break; fi
  done
fi
new_enough "$python" || {
  echo "Trilogue needs Python 3.11 or newer ($("$python" --version 2>&1 || echo none) found)." >&2
  echo "Name one: make PYTHON=/path/to/python3.12 ..." >&2
  exit 1
}

if ! "$python" -m venv "$venv" 2>/dev/null; then
  rm -rf "$venv"
  package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing $package" >&2
    apt-get update -qq && apt-get install -y -qq "$package" >/dev/null
    "$python" -m venv "$venv"
  elif "$python" -m pip --version >/dev/null 2>&1 && "$python" -m venv --without-pip "$venv"; then
    "$python" -m pip --python "$venv/bin/python" install -q 'pip>=25.1'
  else
    rm -rf "$venv"
    echo "$("$python" --version) has no venv module: install it (Debian: apt-get install $package)" >&2
    exit 1
  fi
fi
"$venv/bin/python" -m pip install -q -U 'pip>=25.1' 'setuptools>=77' 'cython>=3.1'
