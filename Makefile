# The commands of this project; `make help` lists them. Python packages are in .venv, the files of the first run in
# $BULKHEAD_HOME (default /var/lib/bulkhead).
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help venv run quick check test docs release clean bench night machine lock proto deps test-deps assets bus-coverage
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

deps:  # install what running needs and the machine lacks (containerd, runc, CNI plugins, busybox)
	@tools/install-missing run

test-deps:  # the same, and what the tests need
	@tools/install-missing run test machine $(if $(NIGHT),night)
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
	$(BIN)/pytest -p tests.queue.compiled tests/unit/bus --cov=bus.ledger --cov=bus.replica --cov-branch --cov-report=term-missing --cov-fail-under=100

# Agents of the tests run on the newest containerd that the cache has (tests/support/installed/chosen_programs.py); some
# tests of each kind run also on that of Debian 12, and some on Docker. The longest files first, whenever one of the processes is free.
# ARGS="--workers 3": so many processes. Each has scratch directories of its own.
# Of the tests in machines of their own, those that take little of an idle processor; one process runs them. Their kernel
# is the newest User Mode Linux, which takes half of the CPU of that of Debian 12; `make machine` has the latter.
IN_MACHINES = $(addprefix tests/machine/test_,apparmor.py cluster.py on_cgroup_v2.py purge.py)
TESTED = tests/unit tests/service tests/simulation tests/architecture tests/process tests/e2e $(IN_MACHINES)
test: export MACHINE_KERNEL ?= sid
test: test-deps assets venv  ## check and every test
	@$(MAKE) --no-print-directory --jobs=2 check bus-coverage
	@$(BIN)/python -m tests.queue $(TESTED) --also TEST_CONTAINERD=bookworm:versions --also TEST_RUNTIME=docker:docker $(ARGS)

bench: test-deps assets venv  ## measure the Go kubelet and this one side by side (25 minutes; ARGS=--quick: 6)
	$(BIN)/python -m bench $(ARGS)

machine: venv  ## a Debian with cgroup v2 and systemd that boots in seconds: the package, reboots, power cuts (ARGS="-k package": only that)
	@tools/install-missing run test machine
	$(BIN)/pytest --basetemp=$$(mktemp -d -t bulkhead-XXXXXX)/t --durations=0 --durations-min=0.5 --junit-xml=build/tests/machine.xml tests/machine $(ARGS)

night: venv  ## every test, then what takes hours (tests/night: new seeds, pairs of kills, the long soak); ARGS=--list shows it
	@NIGHT=1 $(BIN)/python -m tests.night $(ARGS)

quick: venv  ## check and the tests that need neither root nor a runtime
	@$(MAKE) --no-print-directory --keep-going --jobs=6 check $(QUICK_LANES)

# A filesystem in memory takes the files of these tests, where the machine has one.
IN_MEMORY := $(shell test -w /dev/shm && echo /dev/shm || echo $${TMPDIR:-/tmp})
# Lanes by directory, six processes at a time, for most tests wait for real time at some point. Those that wait longest
# come first. Each lane collects only its own tests.
QUICK = PYTEST_DEBUG_TEMPROOT=$(IN_MEMORY) $(BIN)/pytest -p tests.queue.compiled -p tests.queue.lane \
    -o console_output_style=classic -o tmp_path_retention_policy=failed -m "not root and not long" --hypothesis-profile=quick
# Tests of the programs that measure and disturb nodes: `make test` runs them.
OF_TOOLS = bench chaos soak
# Rooms whose tests wait for real time have lanes of their own.
UNIT_WAITS = $(addprefix tests/unit/,frame kube kubelet pleg tools)
SERVICE_WAITS = $(addprefix tests/service/,bus server tracing)
QUICK_LANES = quick-volume quick-unit-waits quick-service-waits quick-service quick-unit quick-podsync quick-cli quick-rest
.PHONY: $(QUICK_LANES)
quick-unit:
	@$(QUICK) tests/unit $(addprefix --ignore=,$(UNIT_WAITS)) $(addprefix --ignore=tests/unit/,podsync volume $(OF_TOOLS))
quick-unit-waits:
	@$(QUICK) $(UNIT_WAITS) tests/unit/volume
quick-podsync:
	@$(QUICK) tests/unit/podsync tests/service/podsync
quick-volume:
	@$(QUICK) tests/service/volume
quick-cli:
	@$(QUICK) tests/service/cli
quick-service:
	@$(QUICK) tests/service $(addprefix --ignore=,$(SERVICE_WAITS)) $(addprefix --ignore=tests/service/,podsync volume cli)
quick-service-waits:
	@$(QUICK) $(SERVICE_WAITS)
quick-rest:
	@$(QUICK) tests/simulation tests/architecture

run: $(VENV)/.synced-run deps  ## run the agent in the foreground with examples/ and show the example pod
	@$(BIN)/python -m tools.first_run

release: venv  ## build a wheel, a Debian package and a container image into build/release: the same commit gives the same bytes
	@tools/install-missing release
	@$(BIN)/python -m tools.release --image $(ARGS)

clean: $(VENV)/.synced-run  ## remove everything `make run` made: pods, containers, mounts, cgroups, bridge, BULKHEAD_HOME
	@$(BIN)/python -m tools.clean
