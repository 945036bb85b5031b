#!/usr/bin/env bash
# Generates the protobuf modules from the .proto files, with the oldest protoc that we want to support: generated
# code refuses a runtime that is older than it, and warns when it is more than one major version younger.
# usage: tools/make-proto.sh          (makes build/protoc, a virtual environment of its own)
#        tools/make-proto.sh tool     only makes that, for the test that compares
set -euo pipefail
cd "$(dirname "$0")/.."
[ -x build/protoc/bin/python ] || python3 -m venv build/protoc
build/protoc/bin/python -c 'import grpc_tools' 2>/dev/null ||
  build/protoc/bin/python -m pip install -q 'grpcio-tools==1.73.1' setuptools
[ "${1:-}" = tool ] && exit
build/protoc/bin/python -W ignore -m grpc_tools.protoc -Isrc --python_out=src --pyi_out=src \
  src/trilogue/wire/*/*.proto
