# Everything that a fresh machine needs is set up by the targets themselves; run `make help` for the list.
# A machine needs Python 3.11+, cargo and make, and Go for gVisor.  Missing tools are skipped; the command that installs each is printed.

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
# What runs, and what develops: the second environment holds the first.
RUNTIME := .venv/.virtgauge-runtime
DEVELOPMENT := .venv/.virtgauge-development
# Parts that the tests need; `virtgauge provision --list` names them all.
PARTS := testing
STEP := setup/step.sh
# Two at a time; those that measure wait until they are alone (tests/conftest.py).
PYTEST = $(PY) -m pytest -n 2

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: run
run: $(RUNTIME) ## set up what the quick preset needs, then measure host, container, gVisor and QEMU (ARGS="..." is passed on)
	@code=0; .venv/bin/virtgauge run quick $(ARGS) || code=$$?; [ -e $(DEVELOPMENT) ] || $(PY) setup/agent.py prune >/dev/null; exit $$code

.PHONY: test
test: PARTS += databases libvirt
test: setup libvirt lint test-rust pytest ## set up, lint, and meet every platform, suite and fault once (half an hour from nothing)

# Three at a time, on two cores: one runs while another waits for a time-out or a worker of its own.
.PHONY: test-quick
test-quick: setup ## the tests that boot nothing, in a minute and a half (ARGS="..." is passed on)
	@$(STEP) quick $(PY) -m pytest -n 3 -m "not slow and not full and not lab" $(ARGS)

.PHONY: test-all
test-all: PARTS += databases libvirt labs
test-all: RUST_TESTS := -- --include-ignored
# For each target of fuzzing, in Rust and in Python: about ten minutes for all of them.
test-all: export FUZZ_SECONDS := 30
test-all: setup libvirt xen-lab lint lint-sensorstore test-rust ## every test, those of the labs too, before work counts as finished (as root)
	@$(STEP) pytest $(PYTEST) -m "" $(ARGS)

.PHONY: test-labs
test-labs: PARTS += labs libvirt
test-labs: setup libvirt xen-lab ## the tests in nested laboratories: Xen, an image with every hypervisor's devices (as root; half an hour)
	@$(STEP) labs $(PYTEST) -m lab $(ARGS)

.PHONY: bench
bench: setup ## measure virtgauge's own speed beside named peers, into benchmarks/RESULTS.md (as root; minutes)
	$(PY) benchmarks/run.py $(ARGS)

.PHONY: databases
databases: environment ## fetch the database servers of the storage suite, pinned (as root; about 300 MB)
	@.venv/bin/virtgauge provision databases

.PHONY: setup
setup: environment provision ## everything that the tests need, without running them

.PHONY: lint
lint: environment ## formatting, lint, types, unused names, layering, clippy
	@$(STEP) ruff $(PY) -m ruff check .
	@$(STEP) ruff-format $(PY) -m ruff format --check .
	@$(STEP) mypy $(PY) -m mypy
	@$(STEP) vulture $(PY) -m vulture
	@$(STEP) layers .venv/bin/lint-imports
	@$(STEP) clippy setup/rust-lint.sh

# Apart, because it reads every driver of every database once more; its tests compile it in any case.
.PHONY: lint-sensorstore
lint-sensorstore: environment
	@$(STEP) clippy-store setup/rust-lint.sh sensorstore

.PHONY: format
format: environment ## reformat Python and Rust in place
	$(PY) -m ruff check --fix-only .
	$(PY) -m ruff format .
	cd native && cargo fmt --all

.PHONY: lock
lock: ## resolve the dependencies anew into the lock files (hashes, no addresses)
	setup/lock.sh

.PHONY: deb
deb: environment ## build a Debian package into dist/, with every library in it
	@$(PY) setup/deb.py

.PHONY: container-image
container-image: environment ## build an OCI image archive into dist/, of Debian's packages alone (as root; INCLUDE="runc" adds packages)
	@$(PY) setup/container_image.py $(if $(INCLUDE),--include "$(INCLUDE)")

.PHONY: release
release: environment ## build wheel, sdist, Debian package, hptime for C, bill of materials, JSON Schema, notes and checksums into dist/
	@$(PY) setup/release.py

.PHONY: release-notes
release-notes: ## print what the changelog says of the version that is next
	@awk '/^## /{n++} n==1' CHANGELOG.md

.PHONY: clean
clean: ## remove what was built in this checkout; caches and runs stay
	rm -rf .venv dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	rm -rf src/virtgauge/native
	find src tests benchmarks setup -name __pycache__ -type d -prune -exec rm -rf {} +

# -- the parts of the set-up ------------------------------------------------------------------------------------

.PHONY: environment
environment: $(DEVELOPMENT)

$(RUNTIME): requirements.lock requirements-uv.lock pyproject.toml native/Cargo.toml hatch_build.py setup/environment.sh
	@setup/start.sh $(if $(wildcard $(DEVELOPMENT)),requirements-dev.lock,requirements.lock)
	@touch $@

$(DEVELOPMENT): requirements-dev.lock requirements-uv.lock pyproject.toml native/Cargo.toml hatch_build.py setup/environment.sh
	@setup/start.sh requirements-dev.lock
	@touch $@ $(RUNTIME)

.PHONY: provision
provision: environment
	@$(STEP) provision .venv/bin/virtgauge provision $(PARTS)

# After the packages, because it is compiled against the machine's libvirt; nothing else needs it.
.PHONY: libvirt
libvirt: provision ## the Python module of libvirt, for guests through it (as root, with PARTS=libvirt, its packages too)
	@setup/libvirt.sh

.PHONY: xen-lab
xen-lab: provision ## the distribution's Xen for the nested lab of the tests: extracted into the cache, never installed
	@PYTHONPATH=tests $(STEP) xen-lab $(PY) -m xen_lab.packages

.PHONY: test-rust
test-rust:
	@cd native && ../$(STEP) rust cargo test --config tests.toml --release --locked --quiet $(RUST_TESTS)
	@$(STEP) rust-store $(PY) setup/sensorstore.py test --config tests.toml --release --locked --quiet $(RUST_TESTS)

# Last, because whoever reads the end of the output shall find pytest's summary there.
.PHONY: pytest
pytest:
	@$(STEP) pytest $(PYTEST) $(ARGS)
