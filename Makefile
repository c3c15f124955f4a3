# Everything runs from a fresh clone with Python 3.11 or newer: `make run`, `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
UV := $(BIN)/python tools/uv.py --quiet
# Torch is outside the lock: one version alone is a build for the CPU, and most users train no nets.
TORCH := $(VENV)/.torch
ADD_TORCH := $(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0 safetensors ml-dtypes

# Tests and benchmarks read real price files only where they are; nothing needs them.
ifneq ($(wildcard ../shared/traces),)
export PROTEUS_TRACES ?= $(abspath ../shared/traces)
endif

.DEFAULT_GOAL := help
# Storms of many seeds in one process each; the others start processes of their own.
MANY_SEEDS := tests/storms/test_engine_storms.py tests/storms/test_crash_points.py tests/storms/test_fault_scripts.py

.PHONY: help lock torch run test storms papers lint compiled docs bench audit sbom size clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z.-]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Where the stamp is missing, an earlier `make` may have been killed: what it left is not trusted.
$(STAMP): requirements.lock pyproject.toml tools/uv.py
	@test -e $@ && test -x $(BIN)/python || $(PYTHON) -m venv --clear $(VENV)
	@rm -f $@
	@sed -n '/^uv==/,/[^\\]$$/p' requirements.lock >$(VENV)/uv.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r $(VENV)/uv.txt
	$(UV) pip sync --python $(BIN)/python --require-hashes requirements.lock
	$(UV) pip install --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@test ! -e $(TORCH) || $(ADD_TORCH)
	@touch $@

.venv: $(STAMP) ## make the environment

# The main index alone is asked: another one may have a part of a release's files, and the lock needs the hash of each.
lock: COMPILE = UV_INDEX= UV_FIND_LINKS= $(UV) pip compile --universal --python-version 3.11 --generate-hashes --no-annotate \
	--custom-compile-command 'make lock' $(LOCK)
lock: $(STAMP) ## make the locks again for pyproject.toml; LOCK=--upgrade takes the newest versions
	$(COMPILE) --extra dev pyproject.toml --output-file requirements.lock
	$(COMPILE) --group node --constraints requirements.lock --output-file requirements-node.lock
	$(COMPILE) --group trial --constraints requirements.lock --output-file requirements-trial.lock

$(TORCH): | $(STAMP)
	$(ADD_TORCH)
	@touch $@

torch: $(TORCH) ## add PyTorch to the environment, for nets

run: $(STAMP) ## train a model on a simulated spot market, on this machine
	$(BIN)/proteus run

lint: $(STAMP) ## style, types and the import rule
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Pytest compiles tests again, with its assertions, unless a cache has them: once, while mypy runs, not in each of its processes.
compiled: $(STAMP)
	-@env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -q --collect-only >$(VENV)/collected.txt 2>&1

test: ## lint, then every test but the long storms
	@$(MAKE) --no-print-directory -j 2 lint compiled
	$(BIN)/python -m pytest -q --cache-clear -n auto --dist loadfile --no-loadscope-reorder || $(BIN)/python tools/rerun.py

storms: $(STAMP) ## the long storms of faults (up to two hours)
	$(BIN)/python -m pytest -q -n auto --dist worksteal -m storm $(MANY_SEEDS)
	$(BIN)/python -m pytest -q -s -m storm tests $(MANY_SEEDS:%=--ignore %)

papers: $(STAMP) ## the tests of the benchmarks that repeat the papers' figures
	$(BIN)/python -m pytest -q -n auto -m 'not storm' tests/benchmarks/papers

docs: $(STAMP) ## the documentation site, in site/
	$(BIN)/python tools/reference_pages.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

bench: $(STAMP) ## the benchmarks, each compared with a peer or a limit
	$(BIN)/proteus bench

audit: $(STAMP) ## known vulnerabilities of the locked packages; asks a public database
	$(UV) tool run pip-audit --disable-pip --require-hashes --requirement requirements.lock

sbom: $(STAMP) ## the locked packages as CycloneDX (dist/sbom.cdx.json), and LICENCES.md
	$(BIN)/python tools/sbom.py dist/sbom.cdx.json LICENCES.md

size: $(STAMP) ## code lines and statements by package, and how many packages are installed
	$(BIN)/python tools/size.py
	@$(BIN)/python tools/packages.py

clean: ## remove the environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
