# Everything runs from a fresh clone with Python 3.11 or newer: `make run`, `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Tests and benchmarks read real price files only where they are; nothing needs them.
ifneq ($(wildcard ../shared/traces),)
export PROTEUS_TRACES ?= $(abspath ../shared/traces)
endif

.DEFAULT_GOAL := help
.PHONY: help run test storms lint bench clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z.-]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): requirements.lock pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(STAMP)

.venv: $(STAMP) ## make the environment

run: $(STAMP) ## train a model on a simulated spot market, on this machine
	$(BIN)/proteus run

lint: $(STAMP) ## style, types and the import rule
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint ## lint, then every test but the long storms
	$(BIN)/python -m pytest -q -n logical --maxprocesses 4 --dist loadfile --no-loadscope-reorder

storms: $(STAMP) ## the long storms of faults (up to two hours)
	$(BIN)/python -m pytest -q -n logical --maxprocesses 4 --dist worksteal -m storm tests/storms/test_engine_storms.py
	$(BIN)/python -m pytest -q -s -m storm tests --ignore tests/storms/test_engine_storms.py

bench: $(STAMP) ## the benchmarks, each beside a peer or a limit
	$(BIN)/proteus bench

clean: ## remove the environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
