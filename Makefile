# Each target is a thin call of uv, which `make` gets by itself if it is missing.
SHELL := /bin/bash
.DEFAULT_GOAL := help

UV_HOME := $(CURDIR)/.uv
UV := $(shell command -v uv 2>/dev/null || echo $(UV_HOME)/bin/uv)
PYTHON := $(shell for p in python3.14 python3.13 python3.12 python3.11 python3; do \
	$$p -c 'import sys; sys.version_info < (3, 11) and sys.exit(1); print(sys.executable)' 2>/dev/null && break; done)
RUN := $(UV) run --frozen --python $(PYTHON)
# Last, so that the user's own commands take precedence.
export PATH := $(PATH):$(patsubst %/,%,$(dir $(UV)))
# The tests start hundreds of processes; compiled bytecode saves each of them time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help:  ## List the targets.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(UV_HOME)/bin/uv:
	@test -n "$(PYTHON)" || { echo "greenroom needs Python 3.11 or newer"; exit 1; }
	$(PYTHON) -m venv $(UV_HOME)
	$(UV_HOME)/bin/pip install --quiet uv

.PHONY: setup
setup: $(UV)  ## Make the environment.
	@test -n "$(PYTHON)" || { echo "greenroom needs Python 3.11 or newer"; exit 1; }
	$(UV) sync --frozen --quiet --python $(PYTHON)

.PHONY: model
model: setup  ## Download the small local model (93 MB) into your cache, once.
	$(RUN) greenroom models pull smollm2-135m

.PHONY: run
run: model  ## Serve the examples on http://127.0.0.1:8000.
	$(RUN) greenroom serve examples

.PHONY: mcp-server
mcp-server:  ## Install MCP's reference server for the tests, if there is npm.
	@npm install --prefix tests/tools/mcp/node --no-package-lock --no-audit --no-fund --ignore-scripts --silent \
		|| echo "MCP's reference server could not be installed; its tests are skipped"

.PHONY: test
test: lint model mcp-server  ## Everything: lint, then all tests with their servers.
	$(RUN) pytest -n 2 --dist worksteal -m "not model"
	$(RUN) pytest -m model  # alone: the model computes with two threads of its own

.PHONY: quick
quick: setup  ## Tests that need no model and kill nothing: under a minute.
	$(RUN) pytest -m "not model and not kill and not fuzz"

.PHONY: lint
lint: setup  ## Check format, lint, types and layers.
	$(RUN) ruff format --check .
	$(RUN) ruff check .
	$(RUN) lint-imports
	$(RUN) pyright

.PHONY: format
format: setup  ## Format, and fix what can be fixed automatically.
	$(RUN) ruff format .
	$(RUN) ruff check --fix .

.PHONY: docs
docs: setup  ## Write the tables of the documentation that are generated from the code.
	$(RUN) python -m tests.documentation.generated_tables

.PHONY: chaos
chaos: setup  ## Kill servers at 100 random moments and resume 1,000 runs of random agents and of random workflows.
	GREENROOM_KILLS=100 GREENROOM_TREES=1000 GREENROOM_GRAPHS=1000 $(RUN) pytest tests/durability -s

.PHONY: fuzz
fuzz: setup  ## Send 50,000 requests generated from the OpenAPI document, valid and invalid.
	GREENROOM_FUZZ=$(or $(REQUESTS),50000) $(RUN) pytest tests/fuzz -s

.PHONY: conformance
conformance: setup  ## Run the agents of tests/adk in ADK, and compare what they do here.
	$(RUN) python -m tests.adk.conformance

.PHONY: bench
bench: setup  ## Measure against ADK's server; writes benchmarks/RESULTS.md.
	$(RUN) python -m benchmarks

.PHONY: bench-instructions
bench-instructions: setup  ## Count the server's instructions per turn, which other load on the machine hardly changes.
	$(RUN) python -m benchmarks.instructions
