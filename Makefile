# From a fresh clone: `make demo` shows it working, `make test` checks everything.
# Needs Python 3.11 or later (with venv), make and git. Another Python: make demo PYTHON=python3.12

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# More than there are cores: some tests wait for machines rather than compute.
WORKERS ?= 4
# One part alone (make test PART=tuning): core, cloud, tuning, workflows, training, reports, service, cli or docs.
PART ?=
ifeq ($(PART),)
  CHECKS := lint types layers docs
  SOURCE := .
else ifeq ($(PART),docs)
  CHECKS := docs
  TESTS := tests/test_docs.py
else
  CHECKS := lint types layers
  SOURCE := $(wildcard src/prudent/$(PART) tests/$(PART))
  TYPED := $(wildcard src/prudent/$(PART))
  TESTS := $(SOURCE)
endif

# Hundreds of processes of the tests import the same modules: they are compiled once, whatever the environment says.
unexport PYTHONDONTWRITEBYTECODE

# Colours only for a person: not in a log file, not when NO_COLOR asks for none.
COLOUR := $(shell [ -z "$$NO_COLOR" ] && [ -t 2 ] && echo yes)
ifeq ($(COLOUR),yes)
  BOLD := $(shell printf '\033[1;36m')
  DIM := $(shell printf '\033[2m')
  RED := $(shell printf '\033[1;31m')
  OFF := $(shell printf '\033[0m')
endif
say = @printf '%s▸ %s%s\n' '$(BOLD)' '$(1)' '$(OFF)'
# A step that says what it took.
define step
	$(call say,$(1))
	@begun=$$(date +%s); $(2) && printf '%s  %s: %d s%s\n' '$(DIM)' '$(1)' $$(($$(date +%s) - begun)) '$(OFF)'
endef
# Fails if processes, ports or temporary folders are left behind.
SUPERVISED := $(BIN)/python tests/running/supervise.py

.PHONY: help demo test format lint types layers docs unit soak coverage bench papers clean
.NOTPARALLEL:
.DEFAULT_GOAL := help

help: ## show this list
	@printf '%sPrudent%s: think ahead before paying\n\n' '$(BOLD)' '$(OFF)'
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  $(BOLD)make %-8s$(OFF) %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.installed-demo ## tune a job, train models, run a workflow and serve a team here, in about three minutes
	$(call say,prudent demo)
	@$(BIN)/prudent demo

# Two cores are kept busy: while the packages of the tests are installed, what needs none of them is checked and
# numba's functions are compiled; types are checked beside the tests. Not written as $(MAKE), which `make -n` would
# run: it only tells.
AGAIN = $(MAKE) --no-print-directory
AHEAD = $(BIN)/python tests/running/compile_ahead.py
test: known-part $(VENV)/.installed-lint ## everything CI checks: style, types, layers, docs, all tests (one part: make test PART=tuning)
	@mkdir -p build; stop() { kill $$beside 2>/dev/null; exit 1; }; \
	  $(AHEAD) functions >build/functions.log 2>&1 & functions=$$!; \
	  $(AGAIN) $(VENV)/.installed-test & installing=$$!; beside="$$functions $$installing"; \
	  $(AGAIN) $(filter-out types,$(CHECKS)) || stop; \
	  wait $$installing || stop; \
	  $(if $(filter types,$(CHECKS)),$(AGAIN) types >build/types.log 2>&1 & types=$$!,types=); \
	  beside="$$functions $$types"; \
	  $(AHEAD) modules >build/modules.log 2>&1 || cat build/modules.log; \
	  wait $$functions || cat build/functions.log; \
	  $(AGAIN) unit || stop; \
	  [ -z "$$types" ] || { wait $$types; typed=$$?; cat build/types.log; exit $$typed; }
	$(call say,all good)

.PHONY: known-part
known-part:
ifneq ($(PART),)
ifeq ($(TESTS),)
	@printf '%sThere is no part "$(PART)": name one of %s or docs.%s\n' '$(RED)' \
	  "$$(cd tests && ls -d */ | grep -v -e running -e soak -e __ | tr -d / | tr '\n' ' ')" '$(OFF)' >&2; exit 2
endif
endif

format: $(VENV)/.installed-lint ## put the code in the house style
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

lint: $(VENV)/.installed-lint ## style only
	$(call step,ruff,$(BIN)/ruff check --quiet $(SOURCE) && $(BIN)/ruff format --quiet --check $(SOURCE))

types: $(VENV)/.installed-test ## types only
	$(call step,mypy --strict,$(BIN)/mypy $(TYPED))

# By its path: an installation that goes on beside may just be replacing the installed name.
layers: $(VENV)/.installed-lint ## import layers only
	$(call step,import layers,PYTHONPATH=src $(BIN)/lint-imports --no-logo)

docs: $(VENV)/.installed-lint ## build the documentation into site/; a broken link fails
	$(call step,documentation,$(BIN)/mkdocs build --strict --quiet)

unit: $(VENV)/.installed-test ## tests, doctests and the tutorials only
	$(call say,tests)
	@$(SUPERVISED) $(BIN)/pytest -p no:randomly -n $(WORKERS) $(TESTS)

soak: $(VENV)/.installed-soak ## long matrices of faults, a random order and mutants of the code: about two hours
	$(call step,tests in a random order,$(SUPERVISED) $(BIN)/pytest -p randomly --hypothesis-profile=thorough -n $(WORKERS))
	$(call step,matrices of faults,$(SUPERVISED) $(BIN)/pytest -p no:randomly -m soak -n $(WORKERS))
	$(call step,mutants,$(BIN)/python tests/soak/mutation.py --sample 300 --seed 7 --jobs 2)

coverage: $(VENV)/.installed-soak ## which lines and branches the tests reach, child processes included
	$(call say,coverage)
	@COVERAGE_FILE=$(CURDIR)/build/coverage/data $(SUPERVISED) \
	  $(BIN)/pytest -p no:randomly -n $(WORKERS) --cov --cov-report=term:skip-covered $(TESTS)

bench: $(VENV)/.installed-bench ## measure again what the documentation claims (slow; PRUDENT_DATA names the data)
	$(call say,benchmarks)
	@for script in benchmarks/*.py; do \
	  printf '%s\n' "$$script"; $(BIN)/python "$$script" || [ $$? -eq 77 ] || exit 1; done

# QUICK=yes: fewer seeds and depths. PAPER="obol lynceus": these only.
papers: $(VENV)/.installed-bench ## repeat the papers' experiments into build/papers (an hour; QUICK=yes; PRUDENT_DATA names the data)
	$(call say,papers)
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.papers $(PAPER) $(if $(QUICK),--quick) || [ $$? -eq 77 ]

clean: ## remove the environment and everything built
	@rm -rf '$(VENV)' site build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	@find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# One stamp for each set of packages: a second run installs nothing unless pyproject.toml changed.
$(VENV)/.installed-%: pyproject.toml | $(VENV)/.made
	$(call say,installing .[$*] into $(VENV) $(DIM)(the first time takes a minute or two)$(BOLD))
	@$(BIN)/python -m pip install --quiet --no-compile --editable '.[$*]'
	@touch $@

$(VENV)/.made:
	@$(check_version)
	@$(check_venv)
	$(call say,making $(VENV) with $(PYTHON))
	@$(PYTHON) -m venv '$(VENV)'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25'
	@touch $@

# Old versions of Python must be able to read these lines too.
define check_version
$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
  found=$$($(PYTHON) -c 'import sys; print("Python %d.%d" % sys.version_info[:2])' 2>/dev/null || echo 'not a working Python'); \
  printf '%sPrudent needs Python 3.11 or later, and "$(PYTHON)" is %s: install a newer one, then run make again with PYTHON=/path/to/python3.11.%s\n' \
    '$(RED)' "$$found" '$(OFF)' >&2; exit 1; }
endef
define check_venv
$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
  printf '%s"$(PYTHON)" has no venv module: install it (on Debian and Ubuntu: apt install python3-venv), then run make again.%s\n' \
    '$(RED)' '$(OFF)' >&2; exit 1; }
endef
