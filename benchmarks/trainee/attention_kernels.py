"""What the attention kernels do, which no compiler says of them: operations, and bytes.

A kernel passes over blocks of keys, and its loops end where data say. Counted is the longest way:
each row one answer, its prompt as long as it may be. Packed rows pass over more.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeAlias

Shapes: TypeAlias = Sequence[Sequence[int]]
"""Shapes of arrays of floating numbers."""

_PRODUCTS = {"forward": 2, "by_query": 1, "by_key": 4, "fwd": 2, "dq": 3, "dkv": 4}
"""Products of a block of queries and a block of keys in each kernel, by what its name holds."""

_NAME = re.compile(r"\b(flash|splash_mha)_(forward|by_query|by_key|fwd|dq|dkv)(?:_in_(\d+))?")
_BLOCKS = {"forward": 64, "by_key": 64, "by_query": 128, "fwd": 512, "dq": 512, "dkv": 512}


def kernel_flops(name: str, operands: Shapes, results: Shapes = ()) -> float:
    """Count two operations for each multiplication of a kernel; 0 if it is none for attention.

    `name` is what a compiled or traced program calls it, with what stands around it. Of the arrays
    with three axes or more the first two are queries and keys: (B, L, H, hd) in Triton's kernels,
    and (B, H, L, hd) or (H, L, hd) in splash's. Triton's kernel for the gradients of queries gets
    gradients of scores instead of the queries, whose shape is that of its result. Where the name
    says that it computes one of several parts, it is taken to be one as long as all others.
    """
    found = _NAME.search(name)
    pair = _queries_and_keys(found, operands, results)
    if found is None or pair is None:
        return 0.0
    query, key = pair
    return 2.0 * _pairs(found, query, key) * query[3] * _PRODUCTS[found.group(2)]


def kernel_bytes(name: str, operands: Shapes, results: Shapes) -> float | None:
    """Count what Triton's kernel for the gradients of queries reads and writes, in bfloat16.

    None of other kernels, which read and write the whole of their arrays. This one reads gradients
    of scores up to the diagonal, and writes one part of its result.
    """
    found = _NAME.search(name)
    pair = _queries_and_keys(found, operands, results)
    if found is None or pair is None or (found.group(1), found.group(2)) != ("flash", "by_query"):
        return None
    query, key = pair
    written = query[0] * query[1] * query[2] * query[3] / int(found.group(3))
    return 2.0 * (_pairs(found, query, key) + written + key[0] * key[1] * key[2] * key[3])


def _queries_and_keys(
    found: re.Match[str] | None, operands: Shapes, results: Shapes
) -> tuple[Sequence[int], Sequence[int]] | None:
    """Return both shapes, (B, ., ., hd); None if it is no kernel for attention."""
    arrays = [shape for shape in operands if len(shape) in (3, 4)]
    if found is None or len(arrays) < 2:  # TPUs have calls beside the kernel that move its operands
        return None
    if found.group(1) == "flash" and found.group(2) == "by_query":
        return results[0], arrays[1]
    query, key = (shape if len(shape) == 4 else (1, *shape) for shape in arrays[:2])
    return query, key


def _pairs(found: re.Match[str], query: Sequence[int], key: Sequence[int]) -> float:
    """Count the pairs of a query and a key in the blocks that a kernel visits, of all heads."""
    along, heads = (1, 2) if found.group(1) == "flash" else (2, 1)
    length, block = query[along], min(_BLOCKS[found.group(2)], query[along])
    pairs = length * (key[along] - length + (length + block) / 2)
    return query[0] * query[heads] * pairs / int(found.group(3) or 1)
