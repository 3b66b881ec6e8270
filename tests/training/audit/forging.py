"""Ways to damage a run, and a chain whose hashes agree with the files again.

Hashes are computed here on their own, as docs/how_to/audit.md states them.
"""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

Damage = Callable[[Path], object]


def canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def sha256(content: bytes | str) -> str:
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


def file_in(run: Path, name: str) -> Path:
    """A file of a run; one such as 1/gate.json stands in the folder of its stage."""
    return run / "stages" / name if name[0].isdigit() else run / name


def lines_of(run: Path, name: str) -> list[Any]:
    return [json.loads(line) for line in file_in(run, name).read_text().splitlines()]


def rewrite(name: str, how: Callable[[str], str]) -> Damage:
    return lambda run: file_in(run, name).write_text(how(file_in(run, name).read_text()))


def change(name: str, how: Callable[[Any], object]) -> Damage:
    """Change the value in a file of JSON, or the list of values in one of JSON lines."""

    def rewritten(text: str) -> str:
        lines = name.endswith("l")
        content = [json.loads(line) for line in text.splitlines()] if lines else json.loads(text)
        how(content)
        return "".join(f"{json.dumps(one)}\n" for one in content) if lines else json.dumps(content)

    return rewrite(name, rewritten)


def put(name: str, *keys: str | int, value: Any) -> Damage:
    """Set the value that stands at the last of these keys."""

    def how(content: Any) -> None:
        for key in keys[:-1]:
            content = content[key]
        content[keys[-1]] = value

    return change(name, how)


def drop(name: str, row: int) -> Damage:
    return change(name, lambda lines: lines.pop(row))


def flip(name: str) -> Damage:
    """Flip a bit in the middle of a file."""

    def damage(run: Path) -> None:
        content = bytearray(file_in(run, name).read_bytes())
        content[len(content) // 2] ^= 1
        file_in(run, name).write_bytes(bytes(content))

    return damage


def remove(*names: str) -> Damage:
    def damage(run: Path) -> None:
        for path in (file_in(run, name) for name in names):
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return damage


def make(name: str, maker: Callable[[Path], object]) -> Damage:
    """Put something else in the place of a file."""
    return lambda run: (remove(name)(run), maker(file_in(run, name)))


def copy(source: str, target: str) -> Damage:
    def damage(run: Path) -> None:
        path = file_in(run, source)
        (shutil.copytree if path.is_dir() else shutil.copy)(path, file_in(run, target))

    return damage


def rehash(run: Path) -> None:
    """Make the hashes of the chain agree with the files as they are now."""
    links, metrics = lines_of(run, "chain.jsonl"), lines_of(run, "metrics.jsonl")
    previous = sha256((run / "config.yaml").read_bytes())
    for stage, link in enumerate(links):
        folder = run / "stages" / str(stage)
        link["files"] = {name: _hash(run, f"{stage}/{name}") for name in link["files"]}
        records = [canonical(one) + "\n" for one in metrics if one.get("stage", 0) == stage]
        link["metrics"] = sha256("".join(records))
        weights = {
            one.name: sha256(one.read_bytes()) for one in folder.glob("policy/*.safetensors")
        }
        link["checkpoint"] = sha256(canonical(weights))
        if "adapters" in link:
            files = {one.name: sha256(one.read_bytes()) for one in folder.glob("adapters/*")}
            link["adapters"] = sha256(canonical(files))
        link["previous"] = previous
        rest = {name: value for name, value in link.items() if name != "hash"}
        previous = link["hash"] = sha256(canonical(rest))
    (run / "chain.jsonl").write_text("".join(canonical(link) + "\n" for link in links))


def _hash(run: Path, name: str) -> str:
    if not name.endswith("answers.jsonl"):
        return sha256(file_in(run, name).read_bytes())
    records = lines_of(run, name)
    for record in records:
        for timed in (record, *record.get("candidates", ())):
            timed.pop("seconds")
    return sha256("".join(canonical(record) + "\n" for record in records))


def both(*damages: Damage) -> Damage:
    return lambda run: [damage(run) for damage in damages]


def links(how: Callable[..., list[str]]) -> Damage:
    """Make other lines of the four of the chain."""
    return rewrite("chain.jsonl", lambda text: "".join(how(*text.splitlines(keepends=True))))
