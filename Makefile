# Every target is a step of the continuous integration or a thing a newcomer wants; `make` lists them.
# PYTHON=python3.12 VENV=.venv-3.12 takes another Python, JOBS=1 one process, LOCKED=1 the versions of the lock file.
PYTHON ?= python3
JOBS ?= 2
SEED ?= 0
ROOMS ?= tests/bounds tests/certify tests/noise tests/runs tests/cli
LOCK := requirements/lock.txt
KATEX := 0.19.1
VENV ?= $(if $(LOCKED),.venv-locked,.venv)
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
PINS := -c constraints.txt $(if $(LOCKED),-c $(LOCK))
COMPILE := uv pip compile -q --no-config --all-extras -c constraints.txt pyproject.toml
# Idle processes take tests from busy ones, so that a long test at the end does not leave the others waiting.
PYTEST = $(BIN)/python -m pytest -n $(JOBS) --dist worksteal
export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help demo test test-all pytest system faults nightly .lowest-tests fuzz mutants mutants-short seeds lint types platforms lowest lock docs dist clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.demo  ## install, then train, sample and certify on the digits data; writes demo/ (with VENV=.venv-x: demo-x/)
	$(BIN)/buckler demo --out demo$(patsubst .venv%,%,$(filter .venv%,$(VENV)))

test: lint types pytest  ## install the development parts, then linter, formatter's check, type checker and the default tests

pytest: $(VENV)/.dev  ## the default tests alone: no Ray, browser, kills or clock; three minutes on two cores
	$(PYTEST)

test-all: lint types $(VENV)/.dev  ## linter, type checker and every test, with all audits, faults, Ray, browser and tutorials
	$(PYTEST) -m ''

system: $(VENV)/.dev  ## tests that kill processes, fill disks, start Ray or open a browser, once each
	$(PYTEST) -m 'faults or ray or browser'

faults: $(VENV)/.dev  ## every fault as often as it should be tried, and the table of what was lost (nothing)
	BUCKLER_FAULTS=full $(BIN)/python -m pytest -m '' tests/faults

fuzz: $(VENV)/.dev  ## each reader of foreign files under a coverage-guided fuzzer, two minutes each
	$(PIP) install atheris
	for target in $$($(BIN)/python -m tests.hostile.fuzz); do $(BIN)/python -m tests.hostile.fuzz $$target -max_total_time=120 || exit 1; done

mutants: $(VENV)/.dev  ## one-token mutants of what certificates rest on, and which of them no test notices; hours, goes on where it was
	$(BIN)/python -m tests.mutants -j $(JOBS)

mutants-short: $(VENV)/.dev  ## a sample of them, seven minutes at most; SEED=1 is another sample
	$(BIN)/python -m tests.mutants -j $(JOBS) --unproved --again --sample 50 --minutes 7 --seed $(SEED)

seeds: $(VENV)/.dev  ## the test suite five times, each with other random numbers: no verdict rests on one seed
	for shift in 1 2 3 4 5; do $(PYTEST) -q -m '' --shift-seeds $$shift || exit 1; done

lint: $(VENV)/.dev  ## linter and formatter's check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev  ## type checker
	$(BIN)/mypy

platforms: $(VENV)/.dev  ## type checker, as on macOS (all of it) and on Windows (the package: the tests send signals)
	$(BIN)/mypy --platform darwin
	$(BIN)/mypy --platform win32 src

lowest:  ## default tests of ROOMS with the lowest versions that pyproject.toml allows (Python 3.11); ROOMS= for all
	$(MAKE) .venv-lowest/.lowest VENV=.venv-lowest PYTHON=$(if $(filter python3,$(PYTHON)),python3.11,$(PYTHON))
	$(MAKE) .lowest-tests VENV=.venv-lowest

.lowest-tests:  # warnings of libraries that were current years ago stay warnings
	$(PYTEST) -W default $(ROOMS)

nightly:  ## what .ci/run leaves out: every Python, newest versions, every test, other seeds, faults, mutants; hours
	.ci/nightly

lock: $(VENV)/bin/python  ## write requirements/lock.txt: today's versions, for every platform and Python
	$(PIP) install uv
	$(BIN)/$(COMPILE) --group dev --group docs --universal --python-version 3.11 --upgrade --custom-compile-command 'make lock' -o $(LOCK)

docs: $(VENV)/.docs  ## build the site into site/, to be read from disk; SERVED=1 adds a search, which needs a server (needs npm, for formulas)
	NO_MKDOCS_2_WARNING=1 BUCKLER_SEARCH=$(if $(SERVED),true,false) $(BIN)/python -m mkdocs build --strict --quiet

dist: $(VENV)/.dist  ## build wheel and source archive into dist/, and check them as a package index would
	rm -rf dist
	$(BIN)/python -m build -q
	$(BIN)/twine check --strict dist/*
	$(BIN)/check-wheel-contents dist/*.whl

clean:  ## remove the environments and everything generated
	rm -rf .venv .venv-* demo demo-* dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(PIP) install 'pip>=25.1'

$(VENV)/.demo: $(VENV)/bin/python pyproject.toml
	$(PIP) install $(PINS) -e '.[demo]'
	touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml constraints.txt $(if $(LOCKED),$(LOCK))
	$(PIP) install $(PINS) -e '.[torch,onnx,ray,report,demo]' --group dev
	touch $@

# torch alone stays at the version of constraints.txt: its lowest has no build for the processor alone on the registry.
$(VENV)/.lowest: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) install uv
	$(BIN)/$(COMPILE) --group test --resolution lowest-direct --python-version 3.11 -o $(VENV)/lowest.txt
	$(PIP) install -c $(VENV)/lowest.txt -e '.[torch,onnx,ray,report,demo]' --group test
	touch $@

$(VENV)/.docs: $(VENV)/bin/python pyproject.toml
	$(PIP) install $(if $(LOCKED),-c $(LOCK)) --group docs
	npm install --silent --no-fund --no-audit --prefix $(VENV) katex@$(KATEX)
	touch $@

$(VENV)/.dist: $(VENV)/bin/python pyproject.toml
	$(PIP) install --group dist
	touch $@
