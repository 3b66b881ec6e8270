# make demo      the main job: an LLM learns, fails, and redesigns its own lake (FRESH=1: from scratch)
# make smollm    the same loop with SmolLM2-135M and LoRA adapters; the engineer reasons
# make test      all tests except the slow ones (WORKERS=2: number of processes)
# make test-all  all tests; make test-slow: the slow ones only (PART=1/8: the first of eight parts)
# make test-nightly  three rounds of SmolLM2-135M, killed, resumed and checked (minutes; 90 MB are fetched)
# make test-verifiers  the example for the library verifiers, in a separate virtual environment
# make lint      ruff and mypy
# make docs      build the documentation site, build/docs/site; broken links are errors
# make test-tpu  compile the lake's programs for a TPU (fetches 1.4 GB, needs no device)
# Each target sets up .venv if needed. ACCELERATOR=cuda sets up for GPUs.

RUN_DIR ?= runs/miniature
SMOLLM_DIR ?= runs/smollm
WORKERS ?= 2
STAMP := .venv/.installed
DOCS_STAMP := .venv/.installed-docs
TPU_STAMP := .venv-tpu/.installed
# Programs that compile within a few minutes in total.
TPU_PROGRAMS := solve-2 generate-2 verify step

# Keep compiled bytecode: the tests start hundreds of processes, and importing JAX, transformers and
# vLLM takes 3x as long without it.
unexport PYTHONDONTWRITEBYTECODE

# Large pages make XLA's environment steps on CPUs 17% faster. glibc reads this at process start.
export GLIBC_TUNABLES ?= glibc.malloc.hugetlb=1

.DEFAULT_GOAL := help
.PHONY: help setup demo smollm test test-slow test-all test-nightly test-tpu test-verifiers lint docs format clean

help:
	@sed -n '/^#/!q; s/^# //p' Makefile

setup: $(STAMP)

$(STAMP): pyproject.toml tools/setup.sh requirements/tested-on-cpu.txt requirements/excluded-on-cpu.txt \
  requirements/resolved-for-cuda.txt
	@tools/setup.sh
	@touch $@

demo: $(STAMP)
	@$(if $(FRESH),rm -rf $(RUN_DIR))
	@.venv/bin/jaxlake run configs/miniature.yaml --run-dir $(RUN_DIR) --set engineer.atlas.after_last=true

smollm: $(STAMP)
	@PYTHONPATH=. .venv/bin/python tools/smollm.py runs/models/SmolLM2-135M-Instruct
	@$(if $(FRESH),rm -rf $(SMOLLM_DIR))
	@.venv/bin/jaxlake run configs/smollm.yaml --run-dir $(SMOLLM_DIR) $(if $(SMOLLM_SET),--set $(SMOLLM_SET))

PYTEST := .venv/bin/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

test: $(STAMP)
	@$(PYTEST) -m "not slow and not nightly" $(PYTEST_ARGS)

test-slow: $(STAMP)
	@$(PYTEST) -m slow $(if $(PART),--part $(PART)) $(PYTEST_ARGS)

test-all: $(STAMP)
	@$(PYTEST) -m "not nightly" $(PYTEST_ARGS)

test-nightly: $(STAMP)
	@.venv/bin/python -m pytest -m nightly -s $(PYTEST_ARGS)

test-tpu: $(TPU_STAMP)
	@PYTHONPATH=. JAX_PLATFORMS=cpu TPU_SKIP_MDS_QUERY=1 ALLOW_MULTIPLE_LIBTPU_LOAD=1 TF_CPP_MIN_LOG_LEVEL=3 \
	  .venv-tpu/bin/python -m benchmarks.accelerators --compile v5e:2x2 --boards 1024 \
	  --environments 256 --only $(TPU_PROGRAMS)

$(TPU_STAMP): $(STAMP)
	@.venv/bin/uv venv --quiet --clear --python .venv/bin/python .venv-tpu
	@.venv/bin/uv pip install --quiet --python .venv-tpu/bin/python \
	  "$$(sed -n 's/^jax==/jax[tpu]==/p' requirements/tested-on-cpu.txt)"
	@touch $@

test-verifiers: $(STAMP)
	@tools/verifiers.sh
	@.venv/bin/python -m pytest -m slow tests/examples/test_verifiers.py $(PYTEST_ARGS)

lint: $(STAMP)
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy

docs: $(DOCS_STAMP)
	@.venv/bin/python -m tools.docs_site

$(DOCS_STAMP): $(STAMP)
	@.venv/bin/uv pip install --quiet --python .venv/bin/python --constraint requirements/tested-on-cpu.txt \
	  --excludes requirements/excluded-on-cpu.txt --requirements pyproject.toml --extra docs
	@touch $@

format: $(STAMP)
	@.venv/bin/ruff check --fix .
	@.venv/bin/ruff format .

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
