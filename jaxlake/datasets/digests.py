"""Which boards a set already has, in 16 bytes a board."""

from hashlib import blake2b

import numpy as np

from jaxlake.instance import Instance

_BYTES = 16
_DIGEST = np.dtype(f"S{_BYTES}")


def digests_of(instances: Instance) -> np.ndarray:
    """The 128-bit BLAKE2b digest of each board: size, holes, agents, starts and goals.

    Args:
        instances: a batch (B, ...) with NumPy leaves, of one N and K.

    Returns:
        S16 (B,), equal for equal boards; for different ones with a chance of 2**-128 a pair.
    """
    count = len(instances.size)
    content = np.concatenate(
        [
            instances.size.astype(np.uint8).reshape(count, 1),
            np.packbits(instances.agent_mask, axis=1),
            instances.starts.view(np.uint8).reshape(count, -1),
            instances.goals.view(np.uint8).reshape(count, -1),
            np.packbits(instances.holes.reshape(count, -1), axis=1),
        ],
        axis=1,
    )
    hashed = (blake2b(row.tobytes(), digest_size=_BYTES).digest() for row in content)
    return np.fromiter(hashed, _DIGEST, count)


class DigestSet:
    """A set of digests as a few sorted runs, each more than twice as long as the next.

    16 bytes a digest at rest and at most 48 while runs are merged; a million take a second or two.
    """

    def __init__(self) -> None:
        self._runs: list[np.ndarray] = []

    def __len__(self) -> int:
        return sum(len(run) for run in self._runs)

    def contains(self, digests: np.ndarray) -> np.ndarray:
        """bool (B,): which digests (B,) are in the set."""
        found = np.zeros(len(digests), bool)
        for run in self._runs:
            place = np.minimum(np.searchsorted(run, digests), len(run) - 1)
            found |= run[place] == digests
        return found

    def add(self, digests: np.ndarray) -> None:
        """Put digests in: distinct ones that are not in the set yet."""
        if not len(digests):
            return
        self._runs.append(np.sort(digests))
        while len(self._runs) > 1 and len(self._runs[-2]) <= 2 * len(self._runs[-1]):
            last = self._runs.pop()
            self._runs[-1] = np.sort(np.concatenate([self._runs[-1], last]))
