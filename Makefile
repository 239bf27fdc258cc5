# Every target makes its own virtual environment where it is missing. Needs Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
CONSTRAINTS := constraints/dev.txt

.PHONY: demo test test-all check system bench docs lock clean

demo: $(VENV)/.installed ## the main job with embedded defaults, ends with figures to look at
	$(BIN)/csdp demo --out demo-out

test: check system $(VENV)/.installed ## the whole suite, the same as CI
	$(BIN)/python -m pytest -n 2 -m "not slow"

test-all: check system $(VENV)/.installed ## with the full-size sweeps
	$(BIN)/python -m pytest -n 2

check: $(VENV)/.installed ## lint, format, types, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

system: ## real servers for the tests, where they are missing and may be installed
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || \
		{ test "$$(id -u)" = 0 && command -v apt-get >/dev/null && apt-get update -qq && \
		  DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends postgresql >/dev/null; } || \
		echo "PostgreSQL is missing and cannot be installed here; its tests will say so"

bench: $(VENV)/.installed ## time and memory, each as a ratio to a peer measured in the same run
	$(BIN)/python -m bench

docs: $(VENV)/.docs ## the documentation site, into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

lock: ## resolve the newest versions again and write them down
	rm -rf $(VENV)
	$(MAKE) $(VENV)/bin/python
	$(PIP) install -e ".[postgres]" --group dev --group docs
	$(BIN)/python -m pip --disable-pip-version-check freeze --exclude-editable > $(CONSTRAINTS)
	touch $(VENV)/.installed $(VENV)/.docs

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(PIP) install "pip>=25.1"

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml $(CONSTRAINTS)
	$(PIP) install -c $(CONSTRAINTS) -e ".[postgres]" --group dev
	touch $@

$(VENV)/.docs: $(VENV)/.installed
	$(PIP) install -c $(CONSTRAINTS) --group docs
	touch $@

clean:
	rm -rf $(VENV) site demo-out build dist
