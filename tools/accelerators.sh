#!/usr/bin/env bash
# Make the environments whose compilers know GPUs and TPUs: `python -m benchmarks.accelerators`.
#
# Neither needs a device or a driver. Name one (gpu: 5.9 GB, tpu: 1.4 GB) or get both. Run
# `make setup` first; it is safe to run this again. Beside JAX they hold what the learner imports.
set -euo pipefail
cd "$(dirname "$0")/.."

uv=.venv/bin/uv
[ -x "$uv" ] || { echo "[accelerators] .venv isn't there: run make setup first" >&2; exit 2; }
jax=$(grep ^jax== requirements/tested-on-cpu.txt)
learner=$(grep -E '^(flax|optax|pydantic|pyyaml|rich|safetensors)==' requirements/tested-on-cpu.txt)
[ $# -gt 0 ] || set -- gpu tpu

for kind in "$@"; do
  case $kind in
    gpu) extra=cuda12 ;;
    tpu) extra=tpu ;;
    *) echo "[accelerators] got '$kind', allowed are gpu and tpu" >&2; exit 2 ;;
  esac
  echo "[accelerators] .venv-$kind"
  [ -x ".venv-$kind/bin/python" ] || "$uv" venv --quiet --python .venv/bin/python ".venv-$kind"
  "$uv" pip install --quiet --python ".venv-$kind/bin/python" "${jax/jax==/jax[$extra]==}" $learner
done
echo "[accelerators] done: .venv/bin/python -m benchmarks.accelerators --target h100:1 --target v5e:2x2"
echo "[accelerators] and   .venv/bin/python -m benchmarks.trainee --target h100:8"
