# `make train` and `make test` each take a fresh clone to a running result: virtual environment,
# dependencies, build, run. Needs python3 (3.11 or newer) with venv, g++ and make; the rest comes
# from pip. A second call does only what has changed.

PYTHON ?= python3
VENV ?= .venv
# What pip installs as torch; any release from 2.11 on will do.
TORCH ?= torch==2.13.0
# Options and files for sdm-train, and options for pytest.
ARGS ?=
PYTEST_ARGS ?=

BIN := $(VENV)/bin
BUILD_INPUTS := pyproject.toml CMakeLists.txt $(shell find csrc cmake -type f 2>/dev/null)
CLANG_FORMAT_FILES = $(shell git ls-files '*.h' '*.cpp' '*.cu' '*.cuh')

.DELETE_ON_ERROR:
.PHONY: train test check fast lint sanitize build clean FORCE

train: build
	$(BIN)/sdm-train $(ARGS)

test: build
	$(BIN)/python -m pytest $(PYTEST_ARGS)

# The linters and, beside them on another core, the fast tests: what to run before a push.
check: build
	@$(MAKE) --no-print-directory --output-sync=target --jobs=2 lint fast

fast: build
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q --fast $(PYTEST_ARGS)

lint: build
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run -Werror $(CLANG_FORMAT_FILES)

# The host twins and the plan runtime under AddressSanitizer and UndefinedBehaviorSanitizer.
sanitize: build
	PATH="$(abspath $(BIN)):$$PATH" PYTHON=$(BIN)/python tools/dev/sanitize_host.sh $(PYTEST_ARGS)

build: $(VENV)/.installed

# Editable: Python sources run from here, the extension from the environment.
$(VENV)/.installed: $(VENV)/.dependencies $(BUILD_INPUTS)
	$(BIN)/python -m pip install --quiet --no-build-isolation --no-deps --editable .
	$(BIN)/python -c "import sdm_runtime; print('backends:', sdm_runtime.backends())"
	@touch $@

# Build tools are installed here, not into pip's throw-away environment: CMake remembers where
# they are, and a rebuild stays incremental.
$(VENV)/.dependencies: pyproject.toml $(VENV)/.torch
	$(BIN)/python -m pip install --quiet "$(TORCH)" cmake ninja $$($(BIN)/python tools/dev/requirements.py)
	@touch $@

$(VENV)/.torch: FORCE | $(BIN)/python
	@echo '$(TORCH)' | cmp -s - $@ || echo '$(TORCH)' > $@

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

clean:
	rm -rf $(VENV) build
