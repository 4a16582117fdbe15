# The commands of the project; `make help` lists them. The project uses its own virtual environment.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
DEMO_STAMP := $(VENV)/.installed-demo
PIP    := $(BIN)/python -m pip --disable-pip-version-check install --no-compile

# Tests start hundreds of processes: without byte code each of them would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-core test-spark test-cases test-s3 test-browser test-wheel test-newest constraints soak soak-tests mutants check site audit bench clean

help:  ## list these targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP)  ## create the virtual environment, and install the project with its tools

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit("Accel needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

# Modules are compiled when they are first imported; to compile all of them would take longer than the demo.
$(DEMO_STAMP): pyproject.toml | $(VENV)/bin/python
	$(PIP) --editable '.[demo,server]'
	@touch $(DEMO_STAMP)

# With TESTED=1 the versions are those of constraints.txt, and files with other hashes are refused.
$(STAMP): pyproject.toml | $(VENV)/bin/python
	$(if $(TESTED),$(PIP) --require-hashes --requirement constraints.txt)
	$(PIP) $(if $(TESTED),--no-deps) --editable '.[dev]'
	@touch $(STAMP) $(DEMO_STAMP)

demo: $(DEMO_STAMP)  ## run lookups on an embedded S3, and print the cost of each policy
	$(BIN)/accel demo
	@echo
	@echo "Next, with a bucket of yours (AWS, or any server of S3 by --endpoint-url):"
	@echo "  $(BIN)/accel doctor s3://bucket/prefix         what can be reached, and what to do about the rest"
	@echo "  $(BIN)/accel catalog init s3://bucket/prefix --namespace demo    or: get-objects --image image.json"
	@echo "The same over HTTP: $(BIN)/accel serve --demo. By use: docs/README.md; the first hour: docs/tutorial.md"

test: $(STAMP)  ## run the tests and the conformance cases, except those of the console (test-browser) and the long ones (soak-tests)
	$(MAKE) --no-print-directory --jobs=3 --output-sync=line test-core test-spark test-cases

test-core: $(STAMP)
	$(BIN)/python -m pytest -n auto --dist worksteal --ignore tests/spark_jobs --ignore-glob '*/test_console*.py'

test-spark: $(STAMP)  # one process, one session of Spark
	$(BIN)/python -m pytest tests/spark_jobs

test-cases: $(STAMP)
	$(BIN)/python -m tests.conformance tests/data

test-newest:  ## run the tests with the newest version of every package, in an environment of their own
	rm -rf $(VENV)/newest
	$(MAKE) --no-print-directory VENV=$(VENV)/newest test

constraints: $(STAMP)  ## write constraints.txt: the versions of this environment, with the hashes of all their files
	$(PYTHON) -m venv $(VENV)/audit
	$(VENV)/audit/bin/python -m pip --disable-pip-version-check install --quiet uv
	$(BIN)/python -m pip --disable-pip-version-check freeze --exclude-editable > $(VENV)/installed.txt
	{ sed -n '/^#/p' constraints.txt; $(VENV)/audit/bin/uv pip compile pyproject.toml --quiet --extra dev --python $(BIN)/python \
	  --constraint $(VENV)/installed.txt --generate-hashes --no-annotate --no-header; } > $(VENV)/constraints.txt
	mv $(VENV)/constraints.txt constraints.txt

test-s3: $(STAMP)  ## run the tests that need a real S3 server: a given one, or Ceph (installs it as root, with apt-get)
	$(BIN)/python -m tests.servers -n auto

test-browser: $(STAMP)  ## run the tests of the console in Chromium (installs it as root, with apt-get)
	@command -v chromium >/dev/null || { test "$$(id -u)" != 0 || { { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; } || echo "chromium could not be installed"; }; }
	$(BIN)/python -m pytest tests/accel/server -k console

test-wheel: $(STAMP)  ## install the wheel with each extra by pip, and test it; takes minutes, and downloads a gigabyte of packages
	$(BIN)/python -m tests.wheel

SECONDS ?= 3600
STEPS   ?= inf
soak: $(STAMP)  ## run random simulations, then fuzz every decoder, SECONDS each: make soak SECONDS=600, or STEPS=1e6
	MALLOC_ARENA_MAX=2 $(BIN)/python -m tests.simulation --processes 2 --seconds $(SECONDS) --total-steps $(STEPS) --report
	$(BIN)/python -m tests.fuzzing --seconds $(SECONDS)

soak-tests: $(STAMP)  ## run all tests, those marked `soak` as well, the random ones with ten times the examples; takes hours
	ACCEL_TEST_EXAMPLES_FACTOR=10 $(BIN)/python -m pytest -m "" -n auto --ignore tests/spark_jobs --timeout 7200
	ACCEL_TEST_EXAMPLES_FACTOR=10 $(BIN)/python -m pytest -m "" tests/spark_jobs --timeout 7200

SAMPLE ?= 160
SEED   ?= 1
mutants: $(STAMP)  ## insert faults into the core, one at a time, and count those that its tests find: make mutants SAMPLE=40
	$(BIN)/python -m tests.mutants --sample $(SAMPLE) --seed $(SEED)

check: $(STAMP)  ## check lint rules, format, types, directions of imports, spelling, and the site of docs/
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/codespell
	$(BIN)/codespell --dictionary .vocabulary --skip "*/decisions/*,*.svg" README.md CONTRIBUTING.md SECURITY.md docs
	$(BIN)/codespell --dictionary .vocabulary --ignore-words-list told,stands accel bloom loaders range_index spark_jobs benchmarks examples deploy
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

site: $(STAMP)  ## build the site of docs/ into .venv/site, and serve it on port 8000
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

audit: $(STAMP)  ## look up known vulnerabilities of all installed packages at PyPI; fails without access to PyPI
	$(PYTHON) -m venv $(VENV)/audit
	$(VENV)/audit/bin/python -m pip --disable-pip-version-check install --quiet pip-audit
	$(BIN)/python -m pip --disable-pip-version-check freeze --exclude-editable > $(VENV)/installed.txt
	$(VENV)/audit/bin/pip-audit --strict --no-deps --disable-pip --requirement $(VENV)/installed.txt

bench: $(STAMP)  ## run all benchmarks; both sides of each ratio are measured in one run
	$(BIN)/python -m benchmarks

clean:  ## remove the virtual environment and all caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
