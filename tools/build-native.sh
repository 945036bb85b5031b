#!/usr/bin/env bash
# Compiles the modules listed in src/trilogue/cli/compiled_modules.py in place. Without a C compiler
# or Python's headers it prints one line and ends with 0: the same modules run uncompiled, slower.
# usage: tools/build-native.sh PYTHON
set -euo pipefail
python=$1
config() { "$python" -c "import sysconfig as s; print($1)"; }

compiler=${CC:-$(config 's.get_config_var("CC") or "cc"')}
if ! command -v "${compiler%% *}" >/dev/null; then
  echo "no C compiler (${compiler%% *}): all modules run as plain Python, slower"
elif [ ! -f "$(config 's.get_path("include")')/Python.h" ]; then
  echo "no Python.h (Debian: python3-dev): all modules run as plain Python, slower"
else
  echo "compiling the hot modules: about 30 s on two cores, 25 MB"
  "$python" setup.py -q build_ext --inplace
fi
