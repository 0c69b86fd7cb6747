# Graphmill's commands for a checkout. `make demo` and `make test` set up everything they need; `make` lists the rest.

PYTHON ?= python3
ifeq ($(origin CXX),default)
CXX := c++
endif
VENV ?= .venv
TORCH := $(shell sed -n 's/^torch==/torch==/p' constraints.txt)
BIN := $(VENV)/bin
GRAPHMILL := $(BIN)/graphmill

# Under the names that the Makefile of the sync-ablation scripts has for them (docs/coming-from.md).
LOCAL_LOGS_DIR ?= logs
MERGED_CSV ?= results/metrics.csv
TEX_FILE ?=
PLOT_BUILD_DIR ?= plots/build
REMOTE_HOST ?=
REMOTE_LOGS_DIR ?=
TEST_ARGS ?=
BENCH_ARGS ?=
# One more than there are cores: many tests wait for processes, jobs and time-outs.
TEST_WORKERS ?= $(shell expr $$(nproc) + 1)
# How often `make test-slow` gives the property tests other examples; `make test` has the same ones each time.
EXPLORE_ROUNDS ?= 3
# The wheel that PYTHON takes: its own for 3.11, else that of all later ones.
WHEEL_PYTHON ?= $(shell $(PYTHON) -c 'import sys; print("3.11" if sys.version_info < (3, 12) else "3.12")')
# ON: the compiler's warnings are errors, as in CI.
WERROR ?= OFF

DEMO = results/demo

# Ranks on few cores lose time to OpenMP threads that wait by spinning; the launcher sets this for ranks, and tests are ranks too.
export OMP_WAIT_POLICY ?= PASSIVE
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export REMOTE_HOST REMOTE_LOGS_DIR LOCAL_LOGS_DIR # read by the shell as variables: no value is ever part of a command

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-slow check check-form check-types check-benchmarks sanitize tidy debug bench-native wheel dist try-wheel format docs install sync-metrics merge-metrics figures pareto pareto-data pareto-figure all clean-demo

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# --- use it --------------------------------------------------------------------------------------------------------

demo: install ## set up, train on a real graph with two ranks under six schemes, merge, draw the figures
	@echo "== debian-packages: a real graph that ships with graphmill"
	$(GRAPHMILL) prepare debian-packages
	@echo "== six schemes, one after the other, two ranks each"
	$(GRAPHMILL) study run study-demo --logs-root $(LOCAL_LOGS_DIR)
	@echo "== from runs to figures"
	$(GRAPHMILL) merge --input-root $(LOCAL_LOGS_DIR)/demo --output $(DEMO)/metrics.csv
	$(GRAPHMILL) pareto --metrics $(DEMO)/metrics.csv --comm-column measured_mib_cum --output-dir $(DEMO)
	$(GRAPHMILL) figures --metrics $(DEMO)/metrics.csv --comm-column measured_mib_cum --images-dir $(DEMO)/figures \
	  --plots-dir $(DEMO)/plots
	@echo
	@$(GRAPHMILL) compare demo --logs-root $(LOCAL_LOGS_DIR) --by train.sync.scheme,train.sync.every
	@echo "The figure: $(CURDIR)/$(DEMO)/figures/best_val_micro_f1_vs_total_comm_measured_debian-packages.png  (PDF beside it, PGFPlots in $(DEMO)/plots)"

clean-demo: ## forget the demo's runs and figures, so that `make demo` trains again
	rm -rf $(LOCAL_LOGS_DIR)/demo $(DEMO)

CXX_FILES = $(wildcard native/*.cpp native/*.h native/*/*.h native/*/*.cpp native/*/*.cu)

# What builds the native core apart from the installed one.
CONFIGURE = mkdir -p build && PATH="$(abspath $(BIN)):$$PATH" $(BIN)/cmake -S . -G Ninja -DCMAKE_CXX_COMPILER=$(CXX) \
  -DPython_EXECUTABLE=$(abspath $(BIN))/python -DSKBUILD_PROJECT_NAME=graphmill
TIDY ?= native/

# --- test it -------------------------------------------------------------------------------------------------------

test: install ## run all but the slow tests
	$(BIN)/python -m pytest -n $(TEST_WORKERS) --dist loadgroup -m "not slow" $(TEST_ARGS)

test-slow: install ## run the slow tests: full fuzz, many kills, big graphs; and property tests on other examples
	$(BIN)/python -m pytest -n $(TEST_WORKERS) --dist loadgroup -m slow $(TEST_ARGS)
	for round in $$(seq $(EXPLORE_ROUNDS)); do \
	  $(BIN)/python -m pytest -n $(TEST_WORKERS) --dist loadgroup -m "hypothesis and not slow" --hypothesis-profile explore -q $(TEST_ARGS) || [ $$? -eq 5 ] || exit 1; \
	done

check: install ## format, lint, types, layers, docs, the house
	$(MAKE) --no-print-directory -j 2 --output-sync=target check-form check-types check-benchmarks
ifeq ($(filter test,$(MAKECMDGOALS)),) # make test runs them too
	$(BIN)/python -m pytest tests/docs tests/test_house.py -m "not slow" -n $(TEST_WORKERS) --dist loadgroup
endif

check-form: ## of check: form, lint, layers, reference, the list of mutations, measured numbers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/clang-format --dry-run --Werror $(CXX_FILES)
	$(BIN)/lint-imports
	$(BIN)/python -m graphmill.cli.reference --check docs/reference
	$(BIN)/python benchmarks/mutations.py --check
	$(BIN)/python benchmarks/measured.py --check || { echo 'README.md: python benchmarks/measured.py --write' >&2; exit 1; }

check-types: ## of check: mypy over the package
	$(BIN)/mypy

check-benchmarks: ## of check: mypy over the benchmarks
	$(BIN)/mypy --config-file benchmarks/mypy.ini

sanitize: install ## the native tests under AddressSanitizer with UBSan, then under ThreadSanitizer
	PYTHON=$(BIN)/python CXX=$(CXX) TEST_WORKERS=$(TEST_WORKERS) .ci/sanitize address,undefined
	PYTHON=$(BIN)/python CXX=$(CXX) TEST_WORKERS=$(TEST_WORKERS) .ci/sanitize thread

tidy: $(VENV)/.graphmill-tidy ## clang-tidy over native/, which takes minutes: one file with TIDY=native/picker.cpp
	$(CONFIGURE) -B build/tidy -DCMAKE_BUILD_TYPE=Release -DCMAKE_EXPORT_COMPILE_COMMANDS=ON >build/tidy.log
	$(BIN)/run-clang-tidy.py -quiet -hide-progress -p build/tidy -clang-tidy-binary $(BIN)/clang-tidy '$(CURDIR)/$(TIDY)'

debug: install ## the native core in build/debug, without optimisation and with the checks of libstdc++
	$(CONFIGURE) -B build/debug -DCMAKE_BUILD_TYPE=Debug >build/debug.log
	$(BIN)/cmake --build build/debug
	@echo "tests with it: GRAPHMILL_NATIVE=$$(echo build/debug/_native*.so) $(BIN)/python -m pytest -p built_core -m 'not distributed' tests/native"

bench-native: install ## time each family of native kernels under each instruction set, beside the floor; BENCH_ARGS: its options
	$(BIN)/python benchmarks/native_kernels.py $(BENCH_ARGS)

# --- wheels: tools/wheels/README.md ----------------------------------------------------------------------------------

wheel: ## build the wheel of this Python and processor, into dist
	$(PYTHON) tools/wheels/build.py --arch $$(uname -m) --python $(WHEEL_PYTHON)

dist: ## build every wheel into dist, with SHA256SUMS: two architectures, Python 3.11 and from 3.12 on
	rm -rf dist
	$(PYTHON) tools/wheels/build.py

try-wheel: wheel ## install that wheel where there is no compiler, train with it, run native tests
	$(PYTHON) tools/wheels/try_wheel.py dist/graphmill-*-cp$(subst .,,$(WHEEL_PYTHON))-*_$$(uname -m).whl

format: install ## put the code in form
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/clang-format -i $(CXX_FILES)

docs: install ## write docs/reference anew from the code
	$(BIN)/python -m graphmill.cli.reference --write docs/reference

# --- targets of the sync-ablation scripts --------------------------------------------------------------------------------------------

sync-metrics: install ## fetch the runs in REMOTE_LOGS_DIR on REMOTE_HOST (user@host) into LOCAL_LOGS_DIR
	@test -n "$$REMOTE_HOST" && test -n "$$REMOTE_LOGS_DIR" || \
	  { echo 'say where the runs are. → make sync-metrics REMOTE_HOST=user@host REMOTE_LOGS_DIR=/path/to/logs' >&2; exit 2; }
	$(GRAPHMILL) pull --to "$$LOCAL_LOGS_DIR" -- "$$REMOTE_HOST:$$REMOTE_LOGS_DIR"

merge-metrics: install ## merge the runs in LOCAL_LOGS_DIR into MERGED_CSV, with LAYOUT=sync-ablation under the names there
	$(GRAPHMILL) merge --input-root $(LOCAL_LOGS_DIR) --output $(MERGED_CSV) $(if $(LAYOUT),--layout $(LAYOUT))

figures: install ## draw all figures of MERGED_CSV, or with TEX_FILE=plots/sync_ablation_DATASET.tex compile only that one
	$(GRAPHMILL) figures --metrics $(MERGED_CSV) $(if $(TEX_FILE),--tex-file $(TEX_FILE)) --build-dir $(PLOT_BUILD_DIR)

pareto-data: install ## write results/pareto_all_fp32_DATASET.csv and results/pareto_frontier_fp32_DATASET.csv
	$(GRAPHMILL) pareto --metrics $(MERGED_CSV) --output-dir results

pareto-figure: install ## draw the Pareto frontier
	$(GRAPHMILL) figures --metrics $(MERGED_CSV) --only pareto_frontier --build-dir $(PLOT_BUILD_DIR)

pareto: pareto-data pareto-figure ## both

all: merge-metrics figures ## merge and draw

# --- set-up: each step leaves a stamp, and is done again when what it depends on changes ----------------------------

install: $(VENV)/.graphmill-installed $(VENV)/.graphmill-tools ## only set up: virtual environment, pinned packages, native core, tools

# Every file of native/ but its page, whatever its name, so that none is forgotten.
NATIVE := $(filter-out %/README.md native/shared native/device native/kernels,$(wildcard native/* native/*/*)) CMakeLists.txt

$(VENV)/.graphmill-venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "graphmill needs Python 3.11 or newer, and $(PYTHON) is not. → make $(MAKECMDGOALS) PYTHON=python3.11" >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' || \
	  { echo "$(PYTHON) has no venv module. → apt-get install python3-venv (Debian, Ubuntu)" >&2; exit 2; }
	@$(PYTHON) -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' || \
	  { echo "$(PYTHON) has no C headers. → apt-get install python3-dev (Debian, Ubuntu)" >&2; exit 2; }
	@echo 'int main() { return 0; }' | $(CXX) -std=c++20 -x c++ -fsyntax-only - || \
	  { echo "graphmill needs a C++20 compiler, and $(CXX) is none. → apt-get install g++, or make $(MAKECMDGOALS) CXX=clang++" >&2; exit 2; }
	@echo "== a virtual environment in $(VENV)"
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.graphmill-packages: constraints.txt pyproject.toml | $(VENV)/.graphmill-venv
	@echo "== pinned packages (torch first; minutes the first time)"
	$(BIN)/pip install -qq -c constraints.txt $(TORCH)
	$(BIN)/pip install -qq -c constraints.txt scikit-build-core nanobind cmake ninja
	@touch $@

$(VENV)/.graphmill-installed: $(VENV)/.graphmill-packages $(NATIVE)
	@echo "== graphmill and its native core, editable (minutes: it is compiled)"
	CXX=$(CXX) $(BIN)/pip install -qq --no-build-isolation -c constraints.txt -C cmake.define.GRAPHMILL_WERROR=$(WERROR) -e '.[pyg,partition,tune,tensorboard,mlflow,dev]'
	@touch $@

# Large, and needed by `make tidy` alone.
$(VENV)/.graphmill-tidy: constraints.txt | $(VENV)/.graphmill-installed
	$(BIN)/pip install -qq -c constraints.txt clang-tidy
	@touch $@

# A local path cannot stand in an extra, so that `dev` cannot name it.
$(VENV)/.graphmill-tools: tools/devcluster/pyproject.toml | $(VENV)/.graphmill-installed
	@echo "== tools/devcluster, editable"
	$(BIN)/pip install -qq --no-build-isolation -c constraints.txt -e ./tools/devcluster
	@touch $@
