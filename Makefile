# make demo   the main job: an LLM learns, fails, and redesigns its own lake (FRESH=1: from scratch)
# make test   all tests (WORKERS=2: that many processes)
# make lint   ruff and mypy
# Each sets up .venv first, once. ACCELERATOR=cuda sets up for GPUs.

RUN_DIR ?= runs/miniature
WORKERS ?= 2
STAMP := .venv/.installed

# Large pages for large arrays: XLA on a CPU steps a sixth faster. It has to be set before a process starts.
export GLIBC_TUNABLES ?= glibc.malloc.hugetlb=1

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint format clean

help:
	@sed -n 's/^# //p' Makefile

setup: $(STAMP)

$(STAMP): pyproject.toml tools/setup.sh requirements/tested-on-cpu.txt requirements/excluded-on-cpu.txt
	@tools/setup.sh
	@touch $@

demo: $(STAMP)
	@$(if $(FRESH),rm -rf $(RUN_DIR))
	@.venv/bin/jaxlake run configs/miniature.yaml --run-dir $(RUN_DIR)

test: $(STAMP)
	@.venv/bin/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

lint: $(STAMP)
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy

format: $(STAMP)
	@.venv/bin/ruff check --fix .
	@.venv/bin/ruff format .

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
