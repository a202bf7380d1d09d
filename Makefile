# The verbs: install, run, test, check, bench. Each works in a fresh clone.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

BIN := .venv/bin
# Stamps carry a hash of what they installed, so an unchanged lock costs nothing and a changed one
# is noticed whatever the files' times say.
hash = $(shell cat $(1) | sha256sum | cut -c1-16)
CPU_STAMP := .venv/stamps/cpu-$(call hash,requirements/cpu.txt pyproject.toml)
DEV_STAMP := .venv/stamps/dev-$(call hash,requirements/dev.txt)
GYM_STAMP := .venv/stamps/reasoning-gym-$(call hash,requirements/reasoning-gym.txt)
PEERS_STAMP := .venv/stamps/peers-$(call hash,requirements/peers.txt)
HEAVY := engine or stack or browser
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: help install run test check bench dev reasoning-gym peers

help:
	@echo 'make install          what a run needs, in .venv'
	@echo 'make run              start Lagoon; ARGS="--no-demo --home DIR --api-port N --dashboard-port M"'
	@echo 'make test             all tests; ARGS="tests/core -k staleness" for some of them'
	@echo 'make check            format, lint, types, import contracts'
	@echo 'make bench NAME=...   one benchmark; ARGS="--quick --check"'

install: $(CPU_STAMP)

run: install
	@exec $(BIN)/lagoon up $(ARGS)

check: install dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: install dev
	@.ci/chromium
	@$(MAKE) reasoning-gym || echo 'The tests of reasoning-gym are skipped: it could not be installed, see above.'
ifdef ARGS
	$(BIN)/python -m pytest -rs $(ARGS)
else
	@# Side by side what only computes; one after the other what starts engines, stacks or browsers.
	@# What takes longest comes first, so that it is not left alone at the end.
	$(BIN)/python -m pytest -rs -m 'not gpu and not ($(HEAVY))' -n 2 --dist loadfile tests/workers/models tests
	$(BIN)/python -m pytest -rs -m 'not gpu and ($(HEAVY))' --durations 10
endif

# Two benchmarks play reasoning-gym, whose requirements include matplotlib; one runs TRL.
bench: install $(if $(filter instruct peers,$(NAME)),reasoning-gym) $(if $(filter peers,$(NAME)),peers)
	$(BIN)/python -m benchmarks.$(or $(NAME),$(error which one? make bench NAME=quickstart)) $(ARGS)

dev: $(DEV_STAMP)

reasoning-gym: install $(GYM_STAMP)

peers: install $(PEERS_STAMP)

.venv/bin/python:
	@.ci/venv

$(CPU_STAMP): | .venv/bin/python
	@echo 'Installing the pinned requirements (about 2.5 GB on disk; once) ...'
	$(PIP) install --quiet --upgrade pip
	$(PIP) install --no-deps -r requirements/cpu.txt
	@# A CUDA build of torch, where pip finds no CPU build, needs libraries of its own.
	$(PIP) install --quiet -c requirements/cpu.txt "$$(grep '^torch==' requirements/cpu.txt)"
	$(PIP) install --quiet --no-deps -e .
	@mkdir -p $(@D) && rm -f $(@D)/cpu-* && touch $@

$(DEV_STAMP): $(CPU_STAMP)
	$(PIP) install --quiet --no-deps -r requirements/dev.txt
	@mkdir -p $(@D) && rm -f $(@D)/dev-* && touch $@

$(GYM_STAMP): $(CPU_STAMP)
	@command -v cc gcc >/dev/null || { echo 'reasoning-gym needs a C compiler (cc or gcc)'; exit 1; }
	@test -e "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" \
	  || { echo 'reasoning-gym needs the C headers of Python (python3-dev)'; exit 1; }
	$(PIP) install --quiet --no-deps -r requirements/reasoning-gym.txt
	@mkdir -p $(@D) && rm -f $(@D)/reasoning-gym-* && touch $@

$(PEERS_STAMP): $(CPU_STAMP)
	rm -rf .venv/peers
	$(BIN)/python -m venv --without-pip .venv/peers
	@# What it does not have itself, it finds in ours.
	$(BIN)/python -c 'import site; print(f"import site; site.addsitedir({site.getsitepackages()[0]!r})")' \
	  > "$$(.venv/peers/bin/python -c 'import site; print(site.getsitepackages()[0])')/ours.pth"
	$(PIP) --python .venv/peers/bin/python install --quiet --no-deps -r requirements/peers.txt
	@mkdir -p $(@D) && rm -f $(@D)/peers-* && touch $@
