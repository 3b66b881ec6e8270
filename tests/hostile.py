"""Random damage to files and values, for tests of readers."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

ODD_VALUES = (
    *(None, True, -1, 0, 1.9, 1e308, 10**400, 2**32, -(2**63), "", "9" * 5000, "x" * 200, "0x3"),
    *("\x1b[2J", "../secret", [], {}, [[]], {"a": {}}, float("inf"), float("nan")),
)
ODD_BYTES = (b"9" * 5000, b"\x1b[2J", b"[" * 300, b'"', b"\0", b"\xff\xfe", b"1e999", b"\n")


@contextmanager
def allow_only(kind: type[Exception], max_length: int = 2000) -> Iterator[None]:
    """Allow no error other than one of this kind with a short message."""
    try:
        yield
    except kind as error:
        if len(str(error)) > max_length:
            raise AssertionError(f"the message has {len(str(error))} characters") from error


def alter_json(value: Any, rng: random.Random, rate: float = 0.1) -> Any:
    """Return a tree of JSON values with random members replaced or removed."""
    if rng.random() < rate:
        return rng.choice(ODD_VALUES)
    if isinstance(value, dict):
        names = [name for name in value if rng.random() > rate / 4]
        return {name: alter_json(value[name], rng, rate) for name in names}
    if isinstance(value, list):
        return [alter_json(item, rng, rate) for item in value if rng.random() > rate / 8]
    return value


def damage_bytes(content: bytes, rng: random.Random) -> bytes:
    """Return bytes with a flipped bit, an insertion, a gap, a copied piece, or an early end."""
    position, source = rng.randrange(len(content)), rng.randrange(len(content))
    head, tail = content[:position], content[position:]
    variants = (
        head + bytes([tail[0] ^ 1 << rng.randrange(8)]) + tail[1:],
        head + rng.choice(ODD_BYTES) + tail,
        head + tail[rng.randrange(1, 40) :],
        head + content[source : source + 20] + tail[20:],
        head,
    )
    return rng.choice(variants)
