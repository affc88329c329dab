# The commands of this project; `make help` lists them. Python packages are in .venv, the files of the first run in
# $BULKHEAD_HOME (default /var/lib/bulkhead).
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help venv lock proto deps test-deps assets check coverage bus-coverage test bench chaos simulate soak probe-load machine night docs screenshots release quick quick-unit quick-service run clean \
    versions test-crun machine-node mutate-cores mutate-shells supervisord-kills client-certificates
export BULKHEAD_HOME ?= /var/lib/bulkhead
# Allow for a slow package index; never download a Python.
export UV_HTTP_TIMEOUT ?= 180
export UV_PYTHON_DOWNLOADS := never
# Use the machine's certificates; newer and older versions of uv have different names for this.
export UV_SYSTEM_CERTS ?= true
export UV_NATIVE_TLS ?= true

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The uv on PATH, else one installed beside the venv (not into the system's Python, which may forbid it: PEP 668).
UV = $$(command -v uv || echo $(CURDIR)/.uv/bin/uv)
HAVE_UV = command -v uv >/dev/null || test -x .uv/bin/uv || $(MAKE) --no-print-directory .uv/bin/uv

help:  ## list the commands
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*##/\t/' | expand -t 14

venv: $(VENV)/.synced  ## create .venv: what runs, and what tests and checks need

# .synced: both lock files; .synced-run: what a node needs, which .synced contains.
SYNC = "$(UV)" pip sync --quiet --compile-bytecode --python $(BIN)/python --require-hashes
INSTALL = "$(UV)" pip install --quiet --python $(BIN)/python --no-deps

$(VENV)/.synced: requirements.lock requirements-dev.lock pyproject.toml | $(VENV)/.python
	@echo "Installing what the two lock files name into $(VENV) ..."
	@$(SYNC) requirements.lock requirements-dev.lock
	@$(INSTALL) --no-build-isolation --editable .
	@touch $@ $(VENV)/.synced-run

$(VENV)/.synced-run: requirements.lock pyproject.toml | $(VENV)/.python
	@if test -e $(VENV)/.synced; then $(MAKE) --no-print-directory $(VENV)/.synced; else \
	echo "Installing what requirements.lock names into $(VENV) ..."; \
	$(SYNC) requirements.lock && $(INSTALL) --build-constraints requirements-dev.lock --editable .; fi
	@touch $@

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "bulkhead: $(PYTHON) is older than 3.11; name another one: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(HAVE_UV)
	@test -x $(BIN)/python || "$(UV)" venv --quiet --python "$$(command -v $(PYTHON))" $(VENV)
	@touch $@

.uv/bin/uv:
	@$(PYTHON) -m pip --version >/dev/null 2>&1 || tools/install-missing venv
	@echo "Installing uv into .uv ..."
	@$(PYTHON) -m pip install --quiet --root-user-action=ignore --target .uv uv

COMPILE = "$(UV)" pip compile --quiet --generate-hashes --no-header --no-emit-index-url --no-emit-find-links --no-annotate \
    --python-version 3.11

lock:  ## write requirements.lock (what runs) and requirements-dev.lock (the rest) from pyproject.toml
	@$(HAVE_UV)
	$(COMPILE) pyproject.toml -o requirements.lock
	$(COMPILE) --group dev -c requirements.lock -o requirements-dev.lock

proto: venv  ## write the generated messages of shared/cri and shared/plugin_grpc from their .proto files
	$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. shared/cri/*.proto shared/plugin_grpc/*.proto

deps:  ## install what running needs and the machine lacks (containerd, runc, CNI plugins, busybox)
	@tools/install-missing run

test-deps:  ## the same, and what the tests need
	@tools/install-missing run test $(if $(NIGHT),night machine)
	@why=$$(tools/newer-containerd sid 2>&1 >/dev/null) || { [ "$$CI" != true ] || \
	    { echo "bulkhead: CI tests with the containerd of Debian sid: $$why" >&2; exit 1; }; \
	    echo "bulkhead: the tests use the containerd that is installed: $$why" >&2; }

assets:  ## put a real control plane into the cache, for the tests (8 minutes the first time), and print its folder
	@tools/control-plane || { [ "$$CI" != true ] && echo "bulkhead: the tests that need a control plane will be skipped" >&2; }

check: venv  ## formatting, lint, types, import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: venv  ## write the parts of the documents that come from the code, render all into build/site, and check their links
	$(BIN)/python -m tools.configuration_page && $(BIN)/python -m tools.metrics_page && $(BIN)/python -m tools.protocol_page
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "build/site/index.html"

bus-coverage: venv  # every branch of the two pure halves of the bus
	$(BIN)/pytest tests/unit/bus --cov=bus.ledger --cov=bus.replica --cov-branch --cov-report=term-missing --cov-fail-under=100

COVERAGE = $(BIN)/coverage
coverage: venv  ## measure lines and branches with child processes, package by package: no figure may fall (20 minutes)
	rm -f .coverage .coverage.* && mkdir -p build
	$(COVERAGE) run --rcfile=tools/coverage.rc -m pytest tests/unit tests/service tests/simulation -m "not root"
	$(COVERAGE) run --rcfile=tools/coverage.rc -m pytest tests/process -m "not root and not alone"
	$(COVERAGE) combine -q --rcfile=tools/coverage.rc
	$(COVERAGE) json -q --rcfile=tools/coverage.rc -o build/coverage.json
	$(BIN)/python -m tools.coverage_ratchet build/coverage.json

# The longest files first, whenever one of the processes is free; what measures latencies alone at the end.
# ARGS="--workers 3": so many processes. Each has scratch directories of its own.
TESTED = tests/unit tests/service tests/simulation tests/architecture tests/process tests/e2e
test: test-deps assets check bus-coverage  ## check and every test
	@$(QUEUE) $(TESTED) --also TEST_CONTAINERD=bookworm:versions $(ARGS)

# Agents of the tests run on the newest containerd that the cache has (tests/support/installed/chosen_programs.py); here some tests of each
# kind run also on that of Debian 12, and at night on crun, which that of Debian 12 needs and which runs in no hybrid cgroups.
QUEUE = KUBEBUILDER_ASSETS=$$(tools/control-plane --existing) $(BIN)/python -m tests.queue
VERSIONS = -m versions $$(grep -rl pytest.mark.versions tests/e2e tests/process)
test-crun:
	@unshare --mount $(SHELL) -c 'umount /sys/fs/cgroup/unified 2>/dev/null; \
	    TEST_CONTAINERD=bookworm TEST_HANDLER=crun $(QUEUE) --build build/tests-crun $(VERSIONS) $(ARGS)'

PYTEST = $(BIN)/pytest --basetemp=$$(mktemp -d -t bulkhead-XXXXXX)/t --durations=12 --durations-min=5
PYTEST_REAL = KUBEBUILDER_ASSETS=$$(tools/control-plane --existing) $(PYTEST)

versions: venv  ## write the table of docs/versions.md from what the tests of the last runs have noted
	$(BIN)/python -m tests.support.installed.ran_versions

bench: test-deps assets venv  ## measure the Go kubelet and this one side by side (25 minutes; ARGS=--quick: 6)
	KUBEBUILDER_ASSETS=$$(tools/control-plane --existing) $(BIN)/python -m bench $(ARGS)

chaos: test-deps assets venv  ## take a real cluster through the kill matrix; prints what each kill cost (20 minutes)
	KUBEBUILDER_ASSETS=$$(tools/control-plane --existing) $(BIN)/python -m tests.chaos --points $(ARGS)

SEEDS ?= 10000
simulate: venv  ## a whole node on virtual time under SEEDS (10000) seeded storms of faults; a failing seed prints its story
	$(BIN)/python -m tests.simulation --seeds $(SEEDS) --jobs 2 $(ARGS)

MINUTES ?= 120
soak: test-deps assets venv  ## MINUTES (120) of churn on a real cluster that must leave nothing behind
	KUBEBUILDER_ASSETS=$$(tools/control-plane --existing) $(BIN)/python -m tests.soak --minutes $(MINUTES) $(ARGS)

probe-load: test-deps assets venv  ## 150 probes a second for 5 minutes on a real node: how late they come and what they cost
	KUBEBUILDER_ASSETS=$$(tools/control-plane --existing) $(BIN)/python -m tests.load.probe_load $(ARGS)

screenshots: test-deps venv  ## write the pictures of docs/node-page.md
	NIGHT=1 SCREENSHOTS=$(CURDIR)/build/screenshots $(PYTEST) tests/process/test_node_page.py -k size
	@mkdir -p docs/images && cp build/screenshots/node-page-{1280-light,1280-light-pods,1280-dark-charts,1280-dark-log,768-light-story,360-dark}.png docs/images/

machine: venv  ## a Debian with cgroup v2 and systemd that boots in seconds: the package, reboots, power cuts (ARGS="-k package": only that)
	@tools/install-missing run test machine
	$(PYTEST_REAL) --durations=0 --durations-min=0.5 tests/machine $(ARGS)

# A node in a machine one part of which is another one: PART=KERNEL=trixie (6.12), KERNEL=sid (7.2), CONTAINERD=sid, HANDLER=crun.
machine-node: venv
	@[[ "$(PART)" =~ ^(KERNEL|CONTAINERD|HANDLER)=. ]] || { echo "bulkhead: name the part and where it is from, such as PART=KERNEL=trixie" >&2; exit 1; }
	@tools/install-missing run test machine
	MACHINE_$(PART) $(PYTEST) tests/machine/test_node.py

# Targets, with commas before their variables. Each is made, whatever those before it have ended with.
NIGHT_PARTS = test test-crun $(patsubst %,machine-node$(comma)PART=%,KERNEL=trixie KERNEL=sid CONTAINERD=sid HANDLER=crun) \
    simulate,SEEDS=10000 coverage mutate-cores mutate-shells chaos,ARGS=--pairs supervisord-kills machine soak,MINUTES=120 client-certificates
comma := ,
night: export NIGHT := 1
night: export FIRST_SEED := $(shell date +%s)
night:  ## every test, then what takes hours: thousands of new seeds, pairs of kills, the long soak
	@trap 'exit 130' INT; failed=; for part in $(NIGHT_PARTS); do \
	    $(MAKE) --no-print-directory $${part//,/ } || failed+=" $$part"; done; \
	    [ -z "$$failed" ] || { echo "bulkhead: parts of the night failed:$$failed" >&2; exit 1; }

mutate-cores: venv
	$(BIN)/python -m tests.support.source.mutation --count 400 --minutes 90
mutate-shells: venv
	$(BIN)/python -m tests.support.source.mutation --shells --count 200 --minutes 90
supervisord-kills: venv
	SUPERVISORD_KILLS=50 $(PYTEST_REAL) tests/process/test_supervisord_kills.py
client-certificates: venv
	$(PYTEST) tests/process/test_client_certificates_by_python.py

quick: venv  ## check and the tests that need neither root nor a runtime
	@$(MAKE) --no-print-directory --keep-going --jobs=4 check $(QUICK_LANES)

# By directory, the longest first: four at a time, for some wait while others work. Each collects only its own tests.
QUICK = $(BIN)/pytest -p tests.queue.lane -o console_output_style=classic -m "not root and not long" --hypothesis-profile=quick
QUICK_LANES = quick-unit quick-service quick-podsync quick-cli quick-volume quick-architecture quick-simulation
.PHONY: $(QUICK_LANES)
quick-unit:
	@$(QUICK) tests/unit --ignore=tests/unit/podsync --ignore=tests/unit/volume
quick-podsync:
	@$(QUICK) tests/unit/podsync tests/service/podsync
quick-volume:
	@$(QUICK) tests/unit/volume tests/service/volume
quick-cli:
	@$(QUICK) tests/service/cli
quick-service:
	@$(QUICK) tests/service --ignore=tests/service/podsync --ignore=tests/service/volume --ignore=tests/service/cli
quick-architecture quick-simulation:
	@$(QUICK) $(@:quick-%=tests/%)

run: $(VENV)/.synced-run deps  ## run the agent in the foreground with examples/ and show the example pod
	@$(BIN)/python -m tools.first_run

release: venv  ## build a wheel, a Debian package and a container image into build/release: the same commit gives the same bytes
	@tools/install-missing release
	@$(BIN)/python -m tools.release --image $(ARGS)

clean: $(VENV)/.synced-run  ## remove everything `make run` made: pods, containers, mounts, cgroups, bridge, BULKHEAD_HOME
	@$(BIN)/python -m tools.clean
