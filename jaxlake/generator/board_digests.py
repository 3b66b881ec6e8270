"""Tell boards apart by 16 bytes each, and remember which ones there are already."""

from hashlib import blake2b

import numpy as np

from jaxlake.board.instance import Instance

_BYTES = 16
_DIGEST = np.dtype(f"S{_BYTES}")


def board_digests(instances: Instance) -> np.ndarray:
    """Hash each board of a batch, S16 (B,): its size, holes, agents, starts and goals.

    Equal for equal boards, whatever their padding. Agents must be in the first slots.
    """
    size, agents = np.asarray(instances.size), np.sum(instances.agent_mask, axis=1)
    digests = np.empty(len(size), _DIGEST)
    for N, K in np.unique(np.stack([size, agents]), axis=1).T.tolist():
        rows = np.flatnonzero((size == N) & (agents == K))
        starts, goals = (
            np.asarray(cells)[rows, :K].view(np.uint8).reshape(len(rows), -1)
            for cells in (instances.starts, instances.goals)
        )
        holes = np.asarray(instances.holes)[rows, :N, :N].reshape(len(rows), -1)
        kind = np.tile(np.array([N, K], np.uint8), (len(rows), 1))
        content = np.concatenate([kind, starts, goals, np.packbits(holes, axis=1)], axis=1)
        digests[rows] = [blake2b(row.tobytes(), digest_size=_BYTES).digest() for row in content]
    return digests


class DigestSet:
    """A set of board digests."""

    def __init__(self, *batches: Instance) -> None:
        """Begin with the boards of some batches, none by default."""
        self._digests: set[bytes] = set()
        for instances in batches:
            self.add(board_digests(instances))

    def __len__(self) -> int:
        return len(self._digests)

    def contains(self, digests: np.ndarray) -> np.ndarray:
        """Say which digests (B,) are in the set: bool (B,)."""
        return np.array([digest in self._digests for digest in digests.tolist()], bool)

    def add(self, digests: np.ndarray) -> None:
        """Add digests (B,)."""
        self._digests.update(digests.tolist())
