.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := bash
.SHELLFLAGS := -euo pipefail -c

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WORKERS ?= 2

# Nothing below the set-up may reach for the network: models and data come from packages and folders.
OFFLINE := HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1
# Two workers with many threads each are slower than two workers with one.
TEST_ENV := $(OFFLINE) OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false

.PHONY: help
help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-10s %s\n", $$1, $$2}'

.PHONY: setup
setup: $(STAMP) ## Make .venv and install narrows with its tools, everything pinned

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt torch
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[reader,bench,report,pdf,eval,dev]'
	touch $@

.PHONY: demo
demo: setup ## Index the example library, ask it questions, show what was saved
	$(OFFLINE) $(BIN)/narrows demo

.PHONY: lint
lint: setup ## Check style, format, import contracts and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/pyright

.PHONY: test
test: lint ## Everything in lint, then the quick tests
	$(TEST_ENV) $(BIN)/python -m pytest -q -n $(WORKERS)

.PHONY: test-all
test-all: lint ## Everything in lint, then all tests, the slow ones too
	$(TEST_ENV) $(BIN)/python -m pytest -q -n $(WORKERS) -m "slow or not slow"

.PHONY: bench
bench: setup ## Measure speed and memory on this machine
	$(OFFLINE) $(BIN)/narrows bench

.PHONY: clean
clean: ## Remove caches and build results; .venv stays
	rm -rf build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +
