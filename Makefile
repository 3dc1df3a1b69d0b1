# Every target sets up what it needs: .venv is made once, and refreshed when a pyproject.toml
# or constraints.txt changes. ARGS="..." is passed on to demo, play, test, slow, fuzz, bench, compat and release.

PYTHON ?= $(firstword $(foreach p,python3.11 python3,\
  $(shell $(p) -c 'import sys; sys.version_info >= (3, 11) and print("$(p)")' 2>/dev/null)))
BIN := .venv/bin
# Quiet twice: errors are shown, warnings about the set-up of this machine's pip are not.
PIP_INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt
# What pip does on one core, without the tests of others. Left to the tests, warnings of compiling would be
# errors there. Files for another Python do not compile, and are not needed.
COMPILE := PYTHONWARNINGS=ignore $(BIN)/python -m compileall -qq -j 0 -x /tests/ .venv/lib || true

# Data sets: where the environment says, else beside the checkout, else none.
ifneq ($(wildcard ../shared/data),)
export GEOSOFTMAX_DATA ?= $(abspath ../shared/data)
endif
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
# Bytecode is kept: tests start many processes, and each would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE
# Threads that wait do not spin: on a busy machine they would take the cores from those that work.
test slow: export OMP_WAIT_POLICY := PASSIVE
# Tests share the cores among them, one thread each. One that hangs fails, and another worker goes on.
test: export OMP_NUM_THREADS := 1

.DEFAULT_GOAL := help
.PHONY: help demo play test slow fuzz lint docs bench compat release clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' Makefile

demo: .venv/.ready ## ordinal regressions on five sets, auto-encoders of digits; prints tables, saves figures
	$(BIN)/geosoftmax demo ordinal $(ARGS)
	$(BIN)/geosoftmax vae compare --data digits --output results/demo-vae --fresh

play: .venv/.ready ## a page, on this machine alone, to play with the link function
	$(BIN)/geosoftmax play $(ARGS)

test: .venv/.ready ## the tests and the examples of the docstrings
	$(BIN)/python -m pytest -m "not slow and not gpu" -n auto --maxprocesses 4 --dist worksteal \
		-o faulthandler_exit_on_timeout=true $(ARGS)

slow: .venv/.ready-site ## the tests that take long; those of the page need Chromium
	$(BIN)/python -m pytest -m "slow and not gpu" $(ARGS)

fuzz: .venv/.ready ## random problems, checked in long double: two minutes, or ARGS="--rows 10000000"
	$(BIN)/python -m fuzz $(ARGS)

lint: .venv/.ready ## ruff (lint and format), pyright, the layers of the library, and the English
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	PYTHONPATH=src $(BIN)/lint-imports
	$(BIN)/python -m tools.english

docs: .venv/.ready-docs ## the site, in docs/_build/html; warnings are errors
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "The site is in docs/_build/html/index.html"

bench: .venv/.ready-bench ## the benchmarks, side by side with the rivals
	$(BIN)/python -m benchmarks $(ARGS)

compat: .venv/.ready-release ## the library on the oldest and newest packages and Pythons, in scratch environments
	$(BIN)/python -m tools.compat $(ARGS)

release: .venv/.ready-release ## build and check what would be published, in dist/; publishes nothing
	$(BIN)/python -m tools.release $(ARGS)

clean: ## remove all that make made
	rm -rf .venv build dist docs/_build docs/api docs/gallery docs/generated .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name .git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is touched after its last command has succeeded, so an interrupted set-up starts again.
.venv/.made:
	@test -n "$(PYTHON)" || { echo "geosoftmax needs Python 3.11 or later; set PYTHON=..." >&2; exit 1; }
	@echo "making .venv; the first set-up takes some minutes"
	$(PYTHON) -m venv --clear .venv
	@touch $@

.venv/.ready: pyproject.toml experiments/pyproject.toml constraints.txt | .venv/.made
	$(PIP_INSTALL) --no-compile -e ".[dev,sklearn]" -e experiments
	@$(COMPILE)
	@touch $@

.venv/.ready-docs: .venv/.ready
	$(PIP_INSTALL) -e ".[docs]"
	@touch $@

.venv/.ready-site: .venv/.ready-docs
	$(PIP_INSTALL) -e ".[browser]"
	@touch $@

.venv/.ready-bench: .venv/.ready
	$(PIP_INSTALL) -e ".[bench]"
	@touch $@

.venv/.ready-release: .venv/.ready
	$(PIP_INSTALL) -e ".[release]"
	@touch $@
