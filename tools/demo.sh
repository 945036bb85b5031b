#!/usr/bin/env bash
# Runs the demo of a fresh checkout: the part without Spark while Spark is being installed.
# usage: tools/demo.sh VENV MAKE [--quick]
set -euo pipefail
venv=$1 make=$2 quick=${3:-}

row() { printf '  %-57s %6s %9s\n' "$@"; }

echo "Trilogue's demo. The times hold for two cores, after downloads:"
row "" time disk
[ -e "$venv/.stamp-clients" ] || row "install the broker, two clients and the data set" "30 s" "370 MB"
[ -e "$venv/.stamp-native" ] || row "compile hot modules, meanwhile (not without a C compiler)" "40 s" "25 MB"
row "three protocols' clients write, a Kafka client reads" "25 s" "300 MB"
if [ -z "$quick" ]; then
  [ -e "$venv/.stamp-spark" ] || row "install Spark and Java, meanwhile (440 MB to download)" "60 s" "800 MB"
  row "a Spark pipeline joins and counts; DuckDB checks" "60 s" "100 MB"
fi
echo

"$make" -s "$venv/bin/python"
"$make" -s "$venv/.stamp-native" & # needs nothing of what pip installs meanwhile
native=$!
"$make" -s "$venv/.stamp-clients"
installer=
if [ -z "$quick" ] && [ ! -e "$venv/.stamp-spark" ]; then
  log=$venv/spark-install.log
  echo "installing Spark in the background (its log: $log)"
  # Last in line for the cores: nobody waits for Spark before the first tables are shown.
  nice -n 10 "$make" -s "$venv/.stamp-spark" >"$log" 2>&1 &
  installer=$!
fi
# Without job control background jobs ignore Ctrl-C: they are ended with this script.
trap 'for job in $native $installer; do pkill -P "$job"; kill "$job"; done 2>/dev/null || true' EXIT
wait "$native"
"$venv/bin/trilogue" demo $quick ${installer:+--spark-installer "$installer"}
