# Everything a newcomer needs; `make help` lists it. The project keeps to a virtual environment of its own.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
DEMO_STAMP := $(VENV)/.installed-demo
PIP    := $(BIN)/python -m pip --disable-pip-version-check install --no-compile

# Tests start hundreds of processes: without byte code each of them would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-core test-spark test-cases test-s3 test-browser test-wheel soak soak-tests mutants check site audit bench clean

help:  ## list these targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP)  ## make the virtual environment and install the project with its tools

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit("Accel needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

# Byte code is made of what runs, when it runs; to make it of all there is would take longer than the demo.
$(DEMO_STAMP): pyproject.toml | $(VENV)/bin/python
	$(PIP) --editable '.[demo,server]'
	@touch $(DEMO_STAMP)

$(STAMP): pyproject.toml | $(VENV)/bin/python
	$(PIP) --editable '.[dev]'
	@touch $(STAMP) $(DEMO_STAMP)

demo: $(DEMO_STAMP)  ## run the main job on an embedded S3 and print what each policy costs
	$(BIN)/accel demo --objects tests/data/stream_set_objects
	@echo
	@echo "The same over HTTP: $(BIN)/accel serve --demo"

test: test-core test-spark test-cases  ## run every test and the conformance cases; those of the console are test-browser's

test-core: $(STAMP)
	$(BIN)/python -m pytest -n auto --dist worksteal --ignore tests/spark_jobs --ignore-glob '*/test_console*.py'

test-spark: $(STAMP)  # one process, one session of Spark
	$(BIN)/python -m pytest tests/spark_jobs

test-cases: $(STAMP)
	$(BIN)/python -m tests.conformance tests/data

test-s3: $(STAMP)  ## run what takes a real S3 server: the one you name, or Ceph (installs it as root, with apt-get)
	$(BIN)/python -m tests.servers -n auto

test-browser: $(STAMP)  ## run the tests of the console in Chromium (installs it as root, with apt-get)
	@command -v chromium >/dev/null || { test "$$(id -u)" != 0 || { { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; } || echo "chromium could not be installed"; }; }
	$(BIN)/python -m pytest tests/accel/server -k console

test-wheel: $(STAMP)  ## install the wheel with each extra by pip and try it; takes minutes, and a gigabyte of a package index
	$(BIN)/python -m tests.wheel

SECONDS ?= 3600
STEPS   ?= inf
soak: $(STAMP)  ## simulate world after world, then fuzz every decoder, SECONDS each: make soak SECONDS=600, or STEPS=1e6
	MALLOC_ARENA_MAX=2 $(BIN)/python -m tests.simulation --processes 2 --seconds $(SECONDS) --total-steps $(STEPS) --report
	@$(PIP) --quiet --editable '.[fuzz]' || echo "atheris cannot be installed here: mutants only, no coverage guidance"
	$(BIN)/python -m tests.fuzzing --seconds $(SECONDS)

soak-tests: $(STAMP)  ## run the random and the exhaustive tests with ten times the examples; takes hours
	ACCEL_TEST_EXAMPLES_FACTOR=10 $(BIN)/python -m pytest -n auto --ignore tests/spark_jobs --timeout 7200
	ACCEL_TEST_EXAMPLES_FACTOR=10 $(BIN)/python -m pytest tests/spark_jobs --timeout 7200

SAMPLE ?= 160
SEED   ?= 1
mutants: $(STAMP)  ## put mistakes into the core, one at a time, and count those that its tests find: make mutants SAMPLE=40
	$(BIN)/python -m tests.mutants --sample $(SAMPLE) --seed $(SEED)

check: $(STAMP)  ## lint, format, types, direction of imports, spelling, the site of docs/
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/codespell
	$(BIN)/codespell --dictionary .vocabulary --skip "*/decisions/*,*.svg" README.md CONTRIBUTING.md SECURITY.md docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

site: $(STAMP)  ## build the site of docs/ into .venv/site, and serve it on port 8000
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

audit: $(STAMP)  ## look up known weaknesses of all that is installed (asks PyPI, and fails where it cannot)
	$(PYTHON) -m venv $(VENV)/audit
	$(VENV)/audit/bin/python -m pip --disable-pip-version-check install --quiet pip-audit
	$(BIN)/python -m pip --disable-pip-version-check freeze --exclude-editable > $(VENV)/installed.txt
	$(VENV)/audit/bin/pip-audit --strict --no-deps --disable-pip --requirement $(VENV)/installed.txt

bench: $(STAMP)  ## measure; both sides of every ratio in one run
	$(BIN)/python -m benchmarks

clean:  ## remove the virtual environment and all caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
