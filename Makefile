# Every target makes its own virtual environment where it is missing. Needs Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
CONSTRAINTS := constraints/dev.txt

# Where Python may not keep compiled modules, each of the many processes of the suite compiles all of them again.
unexport PYTHONDONTWRITEBYTECODE

# Modules of loops that numba compiles, and what has them compiled: where one of them has changed, it is done again.
LOOPS := $(shell grep -rl --include='*.py' numba src/csdp)

# How long to attack, and from which random history on.
SECONDS ?= 600
SEED ?= 2000000

# Where the documentation goes: a folder for each version keeps them side by side.
SITE ?= $(CURDIR)/site

# Real servers and browsers for the tests: a command that shows each is there, and Debian's package that brings it.
SYSTEM := initdb:postgresql mosquitto:mosquitto chromium:chromium java:default-jre-headless \
	Rscript:r-base-core openssl:openssl nginx:nginx-light sqlite3:sqlite3 faketime:faketime podman:podman runc:runc \
	debootstrap:debootstrap

# The tests of the rooms whose branches are counted.
COVERING := $(addprefix tests/,accountant chain contracts fran laws bounds ledger noise planning publisher statistical \
	estimate test_plan.py test_query.py) \
	$(addprefix src/csdp/,accountant chain bounds ledger noise planning publisher estimate aging.py check.py fran.py \
	numbers.py plan.py query.py query_table.py readings.py)

.PHONY: help demo live test test-all check compiled coverage system bench mutants attack reproduce classes figures docs \
	lock release audit clean

demo: $(VENV)/.installed ## the main job with embedded defaults, ends with figures to look at
	$(BIN)/csdp demo -o demo-out

live: $(VENV)/.compiled ## the same data replayed through a service, live in the browser; Ctrl-C stops it
	$(BIN)/csdp demo --live

test: system $(VENV)/.installed ## the whole suite, the same as CI
	$(MAKE) -j 2 check compiled
	$(BIN)/python -m pytest -n 4 --dist loadgroup -m "not slow"

test-all: check compiled system coverage ## with full-size sweeps, deployment, packaging, all of the browser, branches counted
	CSDP_FULL=1 $(BIN)/python -m pytest -n 4 --dist loadgroup

compiled: $(VENV)/.compiled # once, or every process of the suite would compile loops and tests at its beginning
	$(BIN)/python -m pytest --collect-only -q -m "not slow" >/dev/null

check: $(VENV)/.installed ## lint, format, types, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

system: ## real servers and a browser for the tests, where they are missing and may be installed
	@missing=""; \
	for need in $(SYSTEM); do \
		command -v "$${need%%:*}" >/dev/null || ls /usr/sbin/"$${need%%:*}" >/dev/null 2>&1 || \
			ls /usr/lib/postgresql/*/bin/"$${need%%:*}" >/dev/null 2>&1 || missing="$$missing $${need##*:}"; \
	done; \
	test -d /usr/lib/R/site-library/markovchain || missing="$$missing r-cran-markovchain r-cran-rsolnp"; \
	test -z "$$missing" || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && apt-get update -qq && \
		DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $$missing >/dev/null; } || \
		echo "missing, and cannot be installed here:$$missing; the tests that need them will say so"

reproduce: $(VENV)/.installed ## every figure and number of the paper, and what is true, into study-out/
	$(BIN)/python -m study --out study-out

coverage: $(VENV)/.installed ## the branches of the mathematics and the gate that their own tests take
	$(BIN)/python -m pytest -n 2 -q -m "not slow" --cov --cov-report= $(COVERING)
	$(BIN)/python tests/branches.py

mutants: $(VENV)/.mutants ## wrong programmes on purpose: does the suite notice? (about two hours)
	$(BIN)/python tests/mutation.py

attack: $(VENV)/.installed ## random histories against brute force: is any number below the truth? (SECONDS=600)
	cd tests && ../$(BIN)/python -m attacks --seconds $(SECONDS) --seed $(SEED)

bench: $(VENV)/.installed ## time and memory, each as a ratio to a peer measured in the same run
	$(BIN)/python -m bench

classes: $(VENV)/.study ## the classes that fits grow on six data sets, into docs/fitting.md; R data from Debian
	$(BIN)/python -m study.classes --docs docs/fitting.md

figures: $(VENV)/.installed ## the figures of the explanation and of the README, into docs/assets/
	$(BIN)/python -m study.explain
	$(BIN)/python -m study.demo_picture

docs: $(VENV)/.docs ## the documentation site, into SITE=site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir $(SITE)

release: $(VENV)/.release ## wheel, sdist, SBOM and checksums into dist/; KEY=file of an SSH key signs them
	$(BIN)/python deploy/release.py $(if $(KEY),--key $(KEY))

audit: $(VENV)/.release ## dates and advisories of all dependencies into docs/dependencies.md; INDEX=address of an index
	$(BIN)/python deploy/release.py --audit $(INDEX)

lock: ## resolve the newest versions again and write them down
	rm -rf $(VENV)
	$(MAKE) $(VENV)/bin/python
	$(PIP) install -e ".[all]" --group dev --group docs --group mutants --group study
	$(BIN)/python -m pip --disable-pip-version-check freeze --exclude-editable > $(CONSTRAINTS)
	touch $(VENV)/.installed $(VENV)/.docs $(VENV)/.mutants $(VENV)/.study

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(PIP) install "pip>=25.1"

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml $(CONSTRAINTS)
	$(PIP) install -c $(CONSTRAINTS) -e ".[all]" --group dev
	touch $@

$(VENV)/.compiled: $(VENV)/.installed $(LOOPS) # numerical loops, so that no first number waits for them
	$(BIN)/csdp doctor --compile
	touch $@

$(VENV)/.release: $(VENV)/.installed constraints/release.txt
	$(PIP) install -c constraints/release.txt --group release
	touch $@

$(VENV)/.docs: $(VENV)/.installed
	$(PIP) install -c $(CONSTRAINTS) --group docs
	touch $@

$(VENV)/.mutants: $(VENV)/.installed
	$(PIP) install -c $(CONSTRAINTS) --group mutants
	touch $@

$(VENV)/.study: $(VENV)/.installed
	$(PIP) install -c $(CONSTRAINTS) --group study
	touch $@

help: ## what there is to make
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

clean: ## remove what was made here
	rm -rf $(VENV) site demo-out study-out build dist .coverage .mutants
