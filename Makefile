# make quickstart   from nothing to a page that compares ten designs; typed again, it goes on
# make test         the tests, on the CPU
# make lint         ruff and mypy
# make docs         the documentation, into build/docs
# make bench        speed and memory against the plain implementations
#
# On Linux pip's own torch is a CUDA build of several GB. Where there is no GPU, the CPU build is
# enough:  make quickstart TORCH_INDEX=https://download.pytorch.org/whl/cpu
PYTHON ?= python3
VENV ?= .venv
TORCH_INDEX ?=
PIP_FLAGS ?=

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt $(PIP_FLAGS)

.PHONY: quickstart test lint docs bench clean

quickstart: $(VENV)/.installed
	$(BIN)/depthbench run quick
	$(BIN)/depthbench report runs/quick

# One torch thread a worker: more of them on shared cores are slower than one.
test: export OMP_NUM_THREADS = 1
test: export HF_HUB_OFFLINE = 1
test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile $(PYTEST_FLAGS)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check --no-cache .
	$(BIN)/ruff format --no-cache --check .
	$(BIN)/mypy

docs: export OMP_NUM_THREADS = 1
docs: $(VENV)/.installed-dev
	$(BIN)/python -m mkdocs build --strict

bench: export OMP_NUM_THREADS = 1
bench: $(VENV)/.installed-dev
	$(BIN)/python -m pytest --override-ini addopts= tests/benchmarks $(PYTEST_FLAGS)

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .benchmarks

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: setup.cfg constraints.txt | $(BIN)/python
	$(if $(TORCH_INDEX),$(PIP) torch --extra-index-url $(TORCH_INDEX))
	$(PIP) --editable .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP) --editable '.[dev,docs]'
	touch $@
