"""How many operations the attention kernels take, which no compiler says of them.

A kernel passes over blocks of keys, and its loops end where data say. Counted is the longest way:
each row one answer, its prompt as long as it may be. Packed rows pass over more.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_PRODUCTS = {"forward": 2, "by_query": 3, "by_key": 4, "fwd": 2, "dq": 3, "dkv": 4}
"""Products of a block of queries and a block of keys in each kernel, by what its name holds."""

_NAME = re.compile(r"\b(flash|splash_mha)_(forward|by_query|by_key|fwd|dq|dkv)")
_BLOCKS = {"flash": 128, "splash_mha": 512}


def kernel_flops(name: str, operands: Sequence[Sequence[int]]) -> float:
    """Count two operations for each multiplication of a kernel; 0 if it is none for attention.

    `name` is what a compiled or traced program calls it, with what stands around it. `operands` are
    shapes of arrays of floating numbers, of which the first two with three axes or more are queries
    and keys: (B, L, H, hd) in Triton's kernels, and (B, H, L, hd) or (H, L, hd) in splash's.
    """
    found = _NAME.search(name)
    arrays = [shape for shape in operands if len(shape) in (3, 4)]
    if found is None or len(arrays) < 2:  # TPUs have calls beside the kernel that move its operands
        return 0.0
    query, key = (shape if len(shape) == 4 else (1, *shape) for shape in arrays[:2])
    along, heads = (1, 2) if found.group(1) == "flash" else (2, 1)
    length, block = query[along], min(_BLOCKS[found.group(1)], query[along])
    pairs = length * (key[along] - length + (length + block) / 2)
    return 2.0 * query[0] * query[heads] * query[3] * pairs * _PRODUCTS[found.group(2)]
