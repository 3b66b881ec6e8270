"""Sets of boards as 16-byte digests, which identify duplicates."""

from hashlib import blake2b

import numpy as np

from jaxlake.board.instance import Instance

_NUM_BYTES = 16
_DIGEST_DTYPE = np.dtype(f"S{_NUM_BYTES}")


def board_digests(instances: Instance) -> np.ndarray:
    """Return a hash of each board of a batch: its size, holes, agents, starts and goals.

    Equal boards have equal digests regardless of padding. Agents must be in the first slots.

    Args:
        instances: Leaves (B, ...).

    Returns:
        NumPy array of dtype S16 (B,).
    """
    sizes, num_agents = np.asarray(instances.size), np.sum(instances.agent_mask, axis=1)
    digests = np.empty(len(sizes), _DIGEST_DTYPE)
    for N, K in np.unique(np.stack([sizes, num_agents]), axis=1).T.tolist():
        rows = np.flatnonzero((sizes == N) & (num_agents == K))
        starts, goals = (
            np.asarray(cells)[rows, :K].view(np.uint8).reshape(len(rows), -1)
            for cells in (instances.starts, instances.goals)
        )
        holes = np.asarray(instances.holes)[rows, :N, :N].reshape(len(rows), -1)
        kind = np.tile(np.array([N, K], np.uint8), (len(rows), 1))
        content = np.concatenate([kind, starts, goals, np.packbits(holes, axis=1)], axis=1)
        digests[rows] = [blake2b(row.tobytes(), digest_size=_NUM_BYTES).digest() for row in content]
    return digests


class DigestSet:
    """A set of board digests."""

    def __init__(self, *batches: Instance) -> None:
        """Create a set with the boards of the batches."""
        self._digests: set[bytes] = set()
        for instances in batches:
            self.add(board_digests(instances))

    def __len__(self) -> int:
        return len(self._digests)

    def contains(self, digests: np.ndarray) -> np.ndarray:
        """Return which digests (B,) are in the set, as bool (B,)."""
        return np.array([digest in self._digests for digest in digests.tolist()], bool)

    def add(self, digests: np.ndarray) -> None:
        """Add digests (B,)."""
        self._digests.update(digests.tolist())
