"""Safety checks of untrusted model folders before they are loaded.

The libraries that load these folders block on pipes, allocate as much memory as a file requests,
and run chat templates without a time limit.
"""

import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jaxlake.files import load_json
from training.errors import UserError, shorten
from training.run.digests import DIGESTS_FILE, file_digest, find_damage

MAX_TOKENS = 1 << 24
"""Upper bound of token ids, since libraries allocate tables up to the largest id."""

MAX_TEXT_BYTES = 1 << 28
"""Maximum size of a JSON file or template."""

ADAPTER_FILE = "adapter_config.json"

_INDEX = "model.safetensors.index.json"
_MAX_TEMPLATE_SECONDS = 10.0

# Renders a chat template; fails if it needs more than 1 GiB or yields more than 2**20 characters.
_RENDER_PROGRAM = """
import resource, sys
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
class Generation(Extension):
    tags = {"generation"}
    def parse(self, parser):
        next(parser.stream)
        return parser.parse_statements(["name:endgeneration"], drop_needle=True)
environment = ImmutableSandboxedEnvironment(extensions=[Generation, "jinja2.ext.loopcontrols"])
environment.globals["strftime_now"] = environment.globals["raise_exception"] = str
length = 0
try:
    for piece in environment.from_string(sys.stdin.buffer.read().decode()).generate(
        messages=[{"role": "user", "content": "text"}], add_generation_prompt=True,
        tools=None, documents=None, bos_token="", eos_token="",
    ):
        length += len(piece)
        if length > 1 << 20:
            sys.exit(1)
except MemoryError:
    sys.exit(1)
except Exception:
    pass
"""


class ModelFolderError(UserError, ValueError):
    """A model folder is missing, unreadable, or holds an unsupported model."""


def require_safe_folder(folder: Path, *, complete: bool = False) -> None:
    """Raise a `ModelFolderError` if a model folder can't be loaded in bounded time and memory.

    Args:
        folder: The model folder. If it has a `SHA256SUMS`, the digests there must match.
        complete: Whether `SHA256SUMS` must list all files.

    Raises:
        ModelFolderError: A file is unsafe, unreadable, or has the wrong digest.
    """
    try:
        for path in sorted(folder.iterdir()):
            mode = path.stat().st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise ModelFolderError(f"{path}: is a pipe, socket or device, not a file")
            if path.suffix in (".json", ".jinja") and path.stat().st_size > MAX_TEXT_BYTES:
                raise ModelFolderError(f"{path}: has more than {MAX_TEXT_BYTES} bytes")
        if damage := find_damage(folder) if complete else _find_changed_file(folder):
            raise ModelFolderError(f"{damage}; get the folder again")
        if (folder / ADAPTER_FILE).exists():
            raise ModelFolderError(
                f"{folder}: {ADAPTER_FILE} must not be in a model folder; merge the adapters into "
                "the weights, for example with PEFT's merge_and_unload"
            )
        _require_local_weights(folder)
        _require_valid_token_ids(folder / "tokenizer.json")
        for template in _read_chat_templates(folder):
            _require_fast_template(folder, template)
    except OSError as error:
        raise ModelFolderError(f"{error.filename}: can't be read: {error.strerror}") from error


def _find_changed_file(folder: Path) -> str | None:
    """Return a message about a file whose digest differs from `SHA256SUMS`, or None."""
    if not (folder / DIGESTS_FILE).is_file():
        return None
    for line in (folder / DIGESTS_FILE).read_bytes().decode("utf-8", "replace").splitlines():
        digest, _, name = line.partition(" ")
        path = folder / name.removeprefix(" ").removeprefix("*")
        is_listed = len(digest) == 64 and path.parent == folder and path.is_file()
        if is_listed and file_digest(path) != digest.lower():
            return f"{path} has a different SHA-256 than in {DIGESTS_FILE}"
    return None


def _require_local_weights(folder: Path) -> None:
    files = _load_object(folder / _INDEX).get("weight_map")
    for name in files.values() if isinstance(files, dict) else ():
        if not isinstance(name, str) or Path(name).name != name:
            raise ModelFolderError(
                f"{folder / _INDEX}: weight_map must contain names of files in the folder, got "
                f"{shorten(name)}"
            )


def _require_valid_token_ids(file: Path) -> None:
    content = _load_object(file)
    model = content.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    ids = list(vocabulary.values()) if isinstance(vocabulary, dict) else []
    added_tokens = content.get("added_tokens")
    added_tokens = added_tokens if isinstance(added_tokens, list) else []
    ids += [token.get("id") for token in added_tokens if isinstance(token, dict)]
    for token_id in ids:
        if type(token_id) is not int or not 0 <= token_id < MAX_TOKENS:
            raise ModelFolderError(
                f"{file}: token ids must be in [0, {MAX_TOKENS - 1}], got {shorten(token_id)}"
            )


def _load_object(file: Path) -> Mapping[str, Any]:
    """Return the JSON object in a file, or an empty one; loading reports invalid files."""
    if not file.is_file():
        return {}
    try:
        content = load_json(file.read_text(encoding="utf-8"))
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _read_chat_templates(folder: Path) -> Iterator[str]:
    """Yield the chat templates of a folder."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        yield file.read_text(encoding="utf-8", errors="replace")
    for name in ("tokenizer_config.json", "chat_template.json"):
        value = _load_object(folder / name).get("chat_template")
        for entry in value if isinstance(value, list) else [value]:
            template = entry.get("template") if isinstance(entry, dict) else entry
            if isinstance(template, str):
                yield template


def _require_fast_template(folder: Path, template: str) -> None:
    """Raise a `ModelFolderError` if a template exceeds its limits; rendering reports errors."""
    try:
        # A process is needed, because Python can't interrupt an operation on a huge string.
        subprocess.run(
            [sys.executable, "-P", "-c", _RENDER_PROGRAM],
            input=template.encode("utf-8", "replace"),
            capture_output=True,
            timeout=_MAX_TEMPLATE_SECONDS,
            check=True,
        )
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError) as error:
        raise ModelFolderError(
            f"{folder}: the chat template exceeds {_MAX_TEMPLATE_SECONDS:g} s, 1 GiB or 1,048,576 "
            "characters"
        ) from error
