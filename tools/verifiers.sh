#!/usr/bin/env bash
# Make .venv-verifiers, in which examples/verifiers_lake and its test run.
#
# The library `verifiers` wants other versions of openai, mcp and pydantic than the trainee's
# environment has, and an environment for it needs no more of this project than a core install. Run
# `make setup` first; it is safe to run this again.
set -euo pipefail
cd "$(dirname "$0")/.."

uv=.venv/bin/uv
[ -x "$uv" ] || { echo "[verifiers] .venv isn't there: run make setup first" >&2; exit 2; }

[ -x .venv-verifiers/bin/python ] || "$uv" venv --quiet --python .venv/bin/python .venv-verifiers
echo "[verifiers] installing verifiers, jaxlake and the example"
"$uv" pip sync --quiet --python .venv-verifiers/bin/python requirements/verifiers.txt
"$uv" pip install --quiet --no-deps --python .venv-verifiers/bin/python -e . ./examples/verifiers_lake
echo "[verifiers] done"
