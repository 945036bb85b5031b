# `make help` lists the targets. Everything runs in .venv, which `make setup` makes.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp

.DEFAULT_GOAL := help

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  %-18s %s\n", $$1, $$2}'

$(BIN)/python:
	@bash tools/make-venv.sh $(PYTHON) $(VENV)

$(STAMP)-run: pyproject.toml setup.py | $(BIN)/python
	$(BIN)/python -m pip install -q -e '.[demo]'
	@touch $@

$(STAMP)-dev: $(STAMP)-run
	$(BIN)/python -m pip install -q --group dev --group test -e '.[demo]'
	@touch $@

setup: $(STAMP)-dev ## make .venv with everything for development

demo: $(STAMP)-run ## replay 336,776 real flights through the broker and Spark, check the result
	$(BIN)/trilogue demo

serve: $(STAMP)-run ## start a broker on the default ports
	$(BIN)/trilogue serve

test: $(STAMP)-dev ## unit tests, quick conformance and fault tests
	$(BIN)/python -m pytest

lint: $(STAMP)-dev ## ruff, import-linter, codespell, tidy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/codespell src tests docs tools benchmarks *.md
	$(BIN)/python -m pytest -q tests/test_tidy.py

types: $(STAMP)-dev ## mypy --strict
	$(BIN)/mypy

check: lint types test ## what must pass before anything lands

fmt: $(STAMP)-dev ## format and fix what can be fixed
	$(BIN)/ruff check --fix-only -q .
	$(BIN)/ruff format .

native: | $(BIN)/python ## compile the hot modules in place
	$(BIN)/python setup.py -q build_ext --inplace

.PHONY: help setup demo serve test lint types check fmt native
