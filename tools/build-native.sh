#!/usr/bin/env bash
# Compiles the hot modules in place where there is a C compiler with Python's headers, and says so
# in a line where there is none: everything works without, only slower.
# usage: tools/build-native.sh PYTHON
set -euo pipefail
python=$1
config() { "$python" -c "import sysconfig as s; print($1)"; }

compiler=${CC:-$(config 's.get_config_var("CC") or "cc"')}
if ! command -v "${compiler%% *}" >/dev/null; then
  echo "no C compiler (${compiler%% *}): the hot modules run as plain Python, slower"
elif [ ! -f "$(config 's.get_path("include")')/Python.h" ]; then
  echo "no Python.h (Debian: python3-dev): the hot modules run as plain Python, slower"
else
  "$python" setup.py -q build_ext --inplace
fi
