#!/usr/bin/env bash
# Make .venv-peers/pogema, an environment for POGEMA, which needs an old NumPy and pydantic.
#
# `python -m benchmarks.lake` compares the lake with it. Run `make setup` first; it is safe to run this
# again.
set -euo pipefail
cd "$(dirname "$0")/.."

uv=.venv/bin/uv
[ -x "$uv" ] || { echo "[peers] .venv isn't there: run make setup first" >&2; exit 2; }
[ -x .venv-peers/pogema/bin/python ] ||
  "$uv" venv --quiet --python .venv/bin/python .venv-peers/pogema
"$uv" pip sync --quiet --python .venv-peers/pogema/bin/python requirements/peers-pogema.txt
echo "[peers] done: .venv/bin/python -m benchmarks.lake"
