#!/usr/bin/env bash
# Make .venv-peers with the libraries that `python -m benchmarks.lake` measures the lake beside.
#
# They get environments of their own: POGEMA wants a NumPy and a pydantic of long ago. Jumanji and
# gymnax share one, with the JAX that the lake was tested with. Run `make setup` first; it is safe to
# run this again.
set -euo pipefail
cd "$(dirname "$0")/.."

uv=.venv/bin/uv
[ -x "$uv" ] || { echo "[peers] .venv isn't there: run make setup first" >&2; exit 2; }

for name in jax pogema; do
  echo "[peers] .venv-peers/$name"
  [ -x ".venv-peers/$name/bin/python" ] ||
    "$uv" venv --quiet --python .venv/bin/python ".venv-peers/$name"
  "$uv" pip sync --quiet --python ".venv-peers/$name/bin/python" "requirements/peers-$name.txt"
done
echo "[peers] done: .venv/bin/python -m benchmarks.lake"
