# nanoqwen-lab: `make lab` opens the course, `make test` runs every test; both first make .venv where it is missing or old.
#
# Variables, e.g. make lab LAB_ARGS="--no-browser --port=9000"
#   LAB_ARGS      arguments for JupyterLab
#   TORCH_INDEX   index to take PyTorch from; https://download.pytorch.org/whl/cpu has small wheels without CUDA
#   PYTHON        the Python that makes .venv (default: the first from 3.11 to 3.14 on PATH)
#   NOTEBOOKS     the notebooks that `make record` executes (default: all)

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help lab test test-fast test-js test-browser test-python lint record shots setup debian clean
export PYTHON TORCH_INDEX

PY := .venv/bin/python
BOOTSTRAP := python=$$(sh tools/find_python.sh) && exec "$$python" tools/bootstrap.py
PYTEST := $(PY) -m pytest -n auto --maxprocesses 8 --dist loadscope
JS_TESTS = $(shell find tests -name '*.test.mjs')

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' Makefile
	@echo; sed -n '/^# Variables/,/^$$/ s/^# //p' Makefile

lab: ## open the course in JupyterLab
	@$(BOOTSTRAP) lab $(LAB_ARGS)

test: debian lint test-js test-browser test-python ## run every test: lint, JavaScript, browser, Python, notebooks

test-fast: setup ## run the Python tests without a browser and without the notebooks
	$(PYTEST) tests lab_engine widgets --ignore tests/browser --ignore tests/notebooks

test-js: ## run the JavaScript tests
	@if command -v node >/dev/null; then node --test $(JS_TESTS); \
	elif [ -n "$$CI" ]; then echo "nanoqwen-lab: node is missing (Debian: apt install nodejs)" >&2; exit 1; \
	else echo "nanoqwen-lab: node is missing, so the JavaScript tests are skipped"; fi

test-browser: setup ## run the browser tests
	$(PY) -m pytest tests/browser

test-python: setup ## run the Python tests and compare every notebook with its stored outputs
	$(PYTEST) --nbval labs tests lab_engine widgets --ignore tests/browser

lint: setup ## check style and types
	$(PY) -m ruff check .
	$(PY) -m mypy

record: setup ## execute the notebooks in place and store their outputs
	$(PY) -m tools.record_notebooks $(NOTEBOOKS)

shots: setup ## take a picture of every playground into shots/
	$(PY) -m tools.shots

setup: ## make .venv with everything the tests need
	@$(BOOTSTRAP) setup

debian: ## install the Debian packages the tests need (as root; elsewhere say what is missing)
	@sh tools/find_python.sh --install >/dev/null && $(BOOTSTRAP) debian

clean: ## remove .venv, caches and build outputs
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis shots
	find . -name .corpus -prune -o \( -name __pycache__ -o -name .ipynb_checkpoints \) -type d -prune -exec rm -rf {} +
