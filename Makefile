# On a fresh machine with python3 (3.11 or newer): `make demo` shows what it does, `make test` checks it.
# The system's own python3 where it is new enough: distributions build it optimised, version managers often do not, and then
# loops take a quarter longer, and ingest and rebuild a tenth.
SYSTEM_PYTHON := /usr/bin/python3
PYTHON ?= $(shell $(SYSTEM_PYTHON) -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null && echo $(SYSTEM_PYTHON) || echo python3)
BIN := .venv/bin
PART ?=

.DEFAULT_GOAL := help
.PHONY: help demo test test-long bench lint clean clean-readme

help: ## show the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

.venv/installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "python3 is older than 3.11: call make with PYTHON=python3.11 or newer"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python --compile-bytecode --editable '.[test]'
	@$(BIN)/python -m compileall -q chronicle flows tasks infra
	@touch $@

# The peer's binary, for the interchange tests. Without it they are skipped and say so.
.venv/peer: .venv/installed
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps persisting==0.3.0 || \
		echo "pchronicle could not be installed: the interchange tests will be skipped"
	@touch $@

demo: .venv/installed ## run the pipeline on a dozen sample exports; run it twice
	@$(BIN)/python -m infra.demo

lint: .venv/installed ## style and types
	$(BIN)/ruff check .
	$(BIN)/mypy

test: lint .venv/peer ## everything but the long tests
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m "not long"

test-long: .venv/peer ## the tests of size, one part each: make test-long PART=kill
	$(BIN)/python -m pytest -m long --timeout 5400 $(if $(PART),tests/long/test_$(PART).py,tests/long)

bench: .venv/peer ## each bar of speed and size beside the peer: make bench PART=writing, QUICK=1
	$(BIN)/python -m tests.bench $(PART) $(if $(QUICK),--quick)

# Apart from `clean`: a lake holds facts, and somebody may have put their own into this one.
clean-readme: ## remove what the commands of the README left, the lake too
	rm -rf exports lake out stories tables training.jsonl report.html survey.json

clean: ## remove what the demo and the tests left
	rm -rf demo-lake demo-samples demo-out .mypy_cache .ruff_cache .pytest_cache .hypothesis
