"""Tell boards apart by 16 bytes each, and remember which ones there are already."""

from hashlib import blake2b

import numpy as np

from jaxlake.board.instance import Instance

_BYTES = 16
_DIGEST = np.dtype(f"S{_BYTES}")


def board_digests(instances: Instance) -> np.ndarray:
    """Hash each board of a batch: its size, holes, agents, starts and goals.

    The digests, S16 (B,), are 128 bits of BLAKE2b: equal for equal boards; two different boards
    have the same one with a probability of 2**-128. They do not depend on the padding, so boards of
    different batches can be compared. Agents must be in the first slots of each board.
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
    """A set of board digests: a few sorted arrays, each more than twice as long as the next.

    Memory per digest is 16 bytes at rest and at most 48 bytes while arrays are merged. Adding a
    million digests takes two seconds or three at first, and ten and more when there are 15 million.
    """

    def __init__(self, *batches: Instance) -> None:
        """Begin with the boards of some batches, none by default."""
        self._runs: list[np.ndarray] = []
        for instances in batches:
            self.add(board_digests(instances))

    def __len__(self) -> int:
        return sum(len(run) for run in self._runs)

    def contains(self, digests: np.ndarray) -> np.ndarray:
        """Say which digests (B,) are in the set: bool (B,)."""
        found = np.zeros(len(digests), bool)
        for run in self._runs:
            place = np.minimum(np.searchsorted(run, digests), len(run) - 1)
            found |= run[place] == digests
        return found

    def add(self, digests: np.ndarray) -> None:
        """Add digests (B,); those that are in the set already change nothing."""
        new = np.unique(digests)
        new = new[~self.contains(new)]
        if not len(new):
            return
        self._runs.append(new)
        while len(self._runs) > 1 and len(self._runs[-2]) <= 2 * len(self._runs[-1]):
            last = self._runs.pop()
            self._runs[-1] = np.sort(np.concatenate([self._runs[-1], last]))
