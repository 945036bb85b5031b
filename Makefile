# `make help` lists the targets. Everything runs in .venv, which `make setup` makes.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
COMPILED := $(wildcard src/trilogue/*/*.pxd src/trilogue/*/*/*.pxd)
COMPILED += $(filter $(wildcard src/trilogue/*/*.py src/trilogue/*/*/*.py),$(COMPILED:.pxd=.py))

# Tests share the cores, a file to a process (tests/sharing.py); each starts JVMs of its own, so not all of many.
WORKERS ?= $(shell cores=$$(nproc); echo $$((cores < 4 ? cores : 4)))
SHARED := -n $(WORKERS) --dist loadfile

.DEFAULT_GOAL := help

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  %-18s %s\n", $$1, $$2}'

$(BIN)/python:
	@bash tools/make-venv.sh $(PYTHON) $(VENV)

$(STAMP)-run: pyproject.toml setup.py | $(BIN)/python
	@echo "installing what the demo needs (about 700 MB are downloaded the first time)"
	$(BIN)/python -m pip install -q -e '.[demo]'
	@touch $@

$(STAMP)-native: $(COMPILED) | $(STAMP)-run
	@$(MAKE) -s native
	@touch $@

$(STAMP)-dev: $(STAMP)-run
	$(BIN)/python -m pip install -q --group dev --group test -e '.[demo]'
	@touch $@

setup: $(STAMP)-dev $(STAMP)-native ## make .venv with everything for development

demo: $(STAMP)-run $(STAMP)-native ## real flights by Kafka, their weather by Pulsar, planes by TubeMQ, all through Spark, checked
	@$(BIN)/trilogue demo

serve: $(STAMP)-run $(STAMP)-native ## start a broker on the default ports
	@$(BIN)/trilogue serve

test: setup ## unit tests, quick conformance and fault tests
	$(BIN)/python -m pytest $(SHARED)

test-long: setup ## also the long ones: kill, power loss, the whole demo
	$(BIN)/python -m pytest -m 'long or not long'

test-conformance: setup jars ## only the real clients of Kafka, Pulsar and TubeMQ, all of their tests
	$(BIN)/python -m pytest $(SHARED) tests/conformance -m 'long or not long'

test-model: setup ## only the log against its model: 30,000 steps (TRILOGUE_MODEL_STEPS asks for more), and mistakes it must find
	$(BIN)/python -m pytest tests/log/test_model.py tests/log/test_mutations.py -m long

test-crash: setup ## only kill, power loss, failing disks, all of their tests (some want root and strace)
	$(BIN)/python -m pytest tests/crash -m 'long or not long'

lint: setup ## ruff, import-linter, codespell, tidy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/codespell src tests docs tools benchmarks *.md
	$(BIN)/python -m pytest -q tests/test_tidy.py

types: setup ## mypy --strict
	$(BIN)/mypy

check: lint types test ## what must pass before anything lands

fmt: setup ## format and fix what can be fixed
	$(BIN)/ruff check --fix-only -q .
	$(BIN)/ruff format .

native: | $(BIN)/python ## compile the hot modules in place (without a C compiler they stay Python)
	@bash tools/build-native.sh $(BIN)/python

proto: ## generate the protobuf modules from the .proto files
	@bash tools/make-proto.sh

jars: ## Java clients, the real Kafka, Pulsar and TubeMQ, for tests and benchmarks (needs Maven)
	tools/get-jars.sh

bench: setup jars ## measure beside a real Kafka, Pulsar and TubeMQ, same machine, same run
	$(BIN)/python -m benchmarks.run

bench-log: setup ## measure the log without sockets, beside what the disk can do
	$(BIN)/python -m benchmarks.log

clean: ## remove what was built, not .venv
	rm -rf build dist demo-output src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -f src/trilogue/*/*.so src/trilogue/*/*/*.so

.PHONY: help proto setup demo serve test test-long test-model test-conformance test-crash lint types check fmt native jars bench bench-log clean
