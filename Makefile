# Everything that a fresh machine needs is set up by the targets themselves; run `make help` for the list.
# A machine needs Python 3.11+, cargo and make, and Go for gVisor.  What cannot be had is said in one line and skipped.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

export XDG_CACHE_HOME := $(if $(filter /%,$(XDG_CACHE_HOME)),$(XDG_CACHE_HOME),$(HOME)/.cache)
export CARGO_TARGET_DIR ?= $(XDG_CACHE_HOME)/virtgauge/target
# Where PYTHONDONTWRITEBYTECODE is set, every process compiles every package anew; bytecode in the cache soils no folder.
export PYTHONPYCACHEPREFIX ?= $(XDG_CACHE_HOME)/virtgauge/bytecode
unexport PYTHONDONTWRITEBYTECODE
PY := .venv/bin/python
STAMP := .venv/.virtgauge-environment
LOCK := requirements-dev.lock
PURPOSES := guests building
# Quick tests only: what measures, boots or listens has the machine to itself.
SIDE_BY_SIDE := -n 2

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: run
run: setup ## set up, then measure host, container, gVisor and QEMU with the quick preset (ARGS="..." is passed on)
	.venv/bin/virtgauge run quick $(ARGS)

.PHONY: test
test: PURPOSES += browser testing databases libvirt
test: setup libvirt lint test-rust pytest ## set up, lint, and run every test

.PHONY: test-labs
test-labs: PURPOSES += testing labs libvirt
test-labs: setup libvirt ## the tests in nested laboratories: Xen, an image with every hypervisor's devices (as root; half an hour)
	$(PY) -m pytest -m lab $(ARGS)

.PHONY: test-quick
test-quick: PURPOSES += testing
test-quick: setup ## the tests that boot nothing, in under two minutes (ARGS="..." is passed on)
	$(PY) -m pytest $(SIDE_BY_SIDE) -m "not slow and not lab" $(ARGS)

.PHONY: bench
bench: setup ## measure virtgauge's own speed beside named peers, into benchmarks/RESULTS.md (as root; minutes)
	$(PY) benchmarks/run.py $(ARGS)

.PHONY: databases
databases: environment ## fetch the database servers of the storage suite, pinned (as root; about 300 MB)
	@$(PY) -m virtgauge.provision databases

.PHONY: setup
setup: environment provision agent shim sensorstore flushes bandwidth ## everything that `make run` needs, without running it

.PHONY: lint
lint: environment ## formatting, lint, types, layering, clippy
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	.venv/bin/lint-imports
	@setup/rust-lint.sh

.PHONY: format
format: environment ## reformat Python and Rust in place
	$(PY) -m ruff check --fix-only .
	$(PY) -m ruff format .
	cd native && cargo fmt --all
	cd native/sensorstore && cargo fmt --all

.PHONY: lock
lock: ## resolve the dependencies anew into the lock files (hashes, no addresses)
	setup/lock.sh

.PHONY: clean
clean: ## remove what was built in this checkout; caches and runs stay
	rm -rf .venv dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	rm -rf src/virtgauge/native
	find src tests benchmarks setup -name __pycache__ -type d -prune -exec rm -rf {} +

# -- the parts of the set-up ------------------------------------------------------------------------------------

.PHONY: environment
environment: $(STAMP)

$(STAMP): $(LOCK) requirements-uv.lock pyproject.toml hatch_build.py setup/environment.sh
	@VIRTGAUGE_SKIP_AGENT=1 setup/environment.sh $(LOCK)
	@touch $@

.PHONY: agent
agent:
	@$(PY) setup/agent.py

.PHONY: shim
shim:
	@$(PY) setup/shim.py

.PHONY: sensorstore
sensorstore:
	@$(PY) setup/sensorstore.py

.PHONY: flushes
flushes:
	@$(PY) setup/flushes.py

.PHONY: bandwidth
bandwidth:
	@$(PY) setup/bandwidth.py

# Before the agent, because a linker may have to come first.
.PHONY: provision
provision: environment
	@$(PY) -m virtgauge.provision all $(addprefix --for ,$(PURPOSES))

# After the packages, because it is compiled against the machine's libvirt; nothing else needs it.
.PHONY: libvirt
libvirt: provision ## the Python module of libvirt, for guests through it (as root, with PURPOSES=libvirt, its packages too)
	@setup/libvirt.sh

.PHONY: test-rust
test-rust:
	cd native && cargo test --locked --workspace --quiet
	$(PY) setup/sensorstore.py test --locked --quiet

# Last, because whoever reads the end of the output shall find pytest's summaries there.
.PHONY: pytest pytest-quick pytest-slow
pytest: pytest-quick pytest-slow
pytest-quick:
	@$(PY) -m pytest $(SIDE_BY_SIDE) -m "not slow and not lab" $(ARGS)
pytest-slow:
	@$(PY) -m pytest -m "slow and not lab" $(ARGS)
