#!/usr/bin/env bash
# Create .venv-verifiers, the environment of examples/verifiers_lake and its test.
#
# The library `verifiers` needs other versions of openai, mcp and pydantic than the trainee, and only
# a core install of this project. Run `make setup` first.
set -euo pipefail
cd "$(dirname "$0")/.."

uv=.venv/bin/uv
[ -x "$uv" ] || { echo "[verifiers] .venv isn't there: run make setup first" >&2; exit 2; }

[ -x .venv-verifiers/bin/python ] || "$uv" venv --quiet --python .venv/bin/python .venv-verifiers
echo "[verifiers] installing verifiers, jaxlake and the example"
"$uv" pip sync --quiet --python .venv-verifiers/bin/python requirements/verifiers.txt
"$uv" pip install --quiet --no-deps --python .venv-verifiers/bin/python -e . ./examples/verifiers_lake
echo "[verifiers] done"
