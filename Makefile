# Every target is a step of the continuous integration or a thing a newcomer wants; `make` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help demo test pytest faults fuzz lint types docs clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.demo  ## install, then train, sample and certify on the digits data; writes demo/
	$(BIN)/buckler demo --out demo

test: lint types pytest  ## install the development parts, then linter, formatter's check, type checker and the whole test suite

pytest: $(VENV)/.dev  ## the test suite alone
	$(BIN)/python -m pytest

faults: $(VENV)/.dev  ## every fault as often as it should be tried, and the table of what was lost (nothing)
	BUCKLER_FAULTS=full $(BIN)/python -m pytest tests/faults

fuzz: $(VENV)/.dev  ## each reader of foreign files under a coverage-guided fuzzer, two minutes each
	$(PIP) install atheris
	for target in $$($(BIN)/python -m tests.hostile.fuzz); do $(BIN)/python -m tests.hostile.fuzz $$target -max_total_time=120 || exit 1; done

lint: $(VENV)/.dev  ## linter and formatter's check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev  ## type checker
	$(BIN)/mypy

docs: $(VENV)/.docs  ## build the site of the documentation into site/; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

clean:  ## remove the environment and everything generated
	rm -rf $(VENV) demo site .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(PIP) install 'pip>=25.1'

$(VENV)/.demo: $(VENV)/bin/python pyproject.toml
	$(PIP) install -c constraints.txt -e '.[demo]'
	touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) install -c constraints.txt -e '.[torch,onnx,ray,report,demo]' --group dev
	touch $@

$(VENV)/.docs: $(VENV)/bin/python pyproject.toml
	$(PIP) install --group docs
	touch $@
