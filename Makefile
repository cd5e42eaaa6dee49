# From a fresh clone: `make demo` shows it working, `make test` checks everything.
# Needs Python 3.11 or later (with venv), make and git. Another Python: make demo PYTHON=python3.12

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
RUN := nice -n 5
# One more than two cores: some tests wait for machines rather than compute. A file's tests stay in one process,
# so that a browser is not shared and Spark's Java is started and warmed once.
WORKERS ?= 3

# Colours only for a person: not in a log file, not when NO_COLOR asks for none.
COLOUR := $(shell [ -z "$$NO_COLOR" ] && [ -t 2 ] && echo yes)
ifeq ($(COLOUR),yes)
  BOLD := $(shell printf '\033[1;36m')
  DIM := $(shell printf '\033[2m')
  RED := $(shell printf '\033[1;31m')
  OFF := $(shell printf '\033[0m')
endif
say = @printf '%s▸ %s%s\n' '$(BOLD)' '$(1)' '$(OFF)'

.PHONY: help demo test format lint types layers docs unit bench clean
.NOTPARALLEL:
.DEFAULT_GOAL := help

help: ## show this list
	@printf '%sPrudent%s: think ahead before paying\n\n' '$(BOLD)' '$(OFF)'
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  $(BOLD)make %-8s$(OFF) %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.installed-demo ## tune a job, train models, run a workflow and serve a team here, in about three minutes
	$(call say,prudent demo)
	@$(BIN)/prudent demo

test: lint types layers docs unit ## everything CI checks: style, types, layers, docs, all tests
	$(call say,all good)

format: $(VENV)/.installed-test ## put the code in the house style
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

lint: $(VENV)/.installed-test ## style only
	$(call say,ruff)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(VENV)/.installed-test ## types only
	$(call say,mypy --strict)
	@$(BIN)/mypy

layers: $(VENV)/.installed-test ## import layers only
	$(call say,import layers)
	@$(BIN)/lint-imports --no-logo

docs: $(VENV)/.installed-test ## build the documentation into site/; a broken link fails
	$(call say,docs)
	@$(BIN)/mkdocs build --strict --quiet

unit: $(VENV)/.installed-test ## tests, doctests and the tutorials only
	$(call say,pytest)
	@$(BIN)/python -m prudent.training.engines.spark.warming || true # a minute, once: tests of Spark start sooner
	@$(RUN) $(BIN)/pytest -n $(WORKERS) --dist loadfile

bench: $(VENV)/.installed-bench ## measure again what the documentation claims (slow; PRUDENT_DATA names the data)
	$(call say,benchmarks)
	@for script in benchmarks/*.py; do \
	  printf '%s\n' "$$script" && $(BIN)/python "$$script" || exit 1; done

clean: ## remove the environment and everything built
	@rm -rf '$(VENV)' site build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	@find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# One stamp for each set of packages: a second run installs nothing unless pyproject.toml changed.
$(VENV)/.installed-%: pyproject.toml | $(VENV)/.made
	$(call say,installing .[$*] into $(VENV) $(DIM)(the first time takes a minute or two)$(BOLD))
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@

$(VENV)/.made:
	@$(check_version)
	@$(check_venv)
	$(call say,making $(VENV) with $(PYTHON))
	@$(PYTHON) -m venv '$(VENV)'
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
