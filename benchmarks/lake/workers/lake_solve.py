"""Worker that solves all boards of a file with one call of `jaxlake.solve`.

`max_expansions` of each board equals that of `generate`. It is below the default of `solve`,
because a batch waits for its hardest boards, and the peer also gives up boards.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxlake
from benchmarks.lake.protocol import serve
from benchmarks.lake.workers.jax_program import BATCH, ProgramBenchmark, compile_program
from jaxlake.solver.many_agents import candidate_max_expansions


def read_boards(path: str, count: int | None = None) -> jaxlake.Instance:
    """Read the first `count` boards of a file of `write_boards` (None: all) as one batch."""
    arrays = {name: leaf[:count] for name, leaf in np.load(path).items()}
    batch_size, size = arrays["holes"].shape[:2]
    return jaxlake.Instance(
        holes=arrays["holes"],
        size=jnp.full(batch_size, size, jnp.int32),
        starts=arrays["starts"],
        goals=arrays["goals"],
        agent_mask=jnp.ones(arrays["starts"].shape[:2], bool),
    )


def solve_random_board(board: jaxlake.Instance) -> jaxlake.Solution:
    """Solve a board with the `max_expansions` of `generate`'s candidates."""
    return jaxlake.solve(board, max_expansions=candidate_max_expansions(board))


class _Solver(ProgramBenchmark):
    """The compiled solver and its boards; a unit is a board solved or proved unsolvable."""

    def prepare(self, path: str, count: int, devices: int) -> dict[str, Any]:
        """Read the boards, compile the solver, and solve them once for the comparison of costs."""
        instances = read_boards(path, count)
        self.program = compile_program(
            jax.vmap(solve_random_board), (instances,), (BATCH,), devices
        )
        self._solutions = jax.tree.map(np.asarray, self.program())
        status = self._solutions.status
        self.units = int(np.sum(status != jaxlake.Status.UNKNOWN))
        counts = {s.name.lower(): int(np.sum(status == s)) for s in jaxlake.Status}
        return {"compile_seconds": self.program.compile_seconds, "boards": count, **counts}

    def costs(self) -> dict[str, Any]:
        """Return the status and the optimal sum of costs of each board."""
        return {
            "status": self._solutions.status.tolist(),
            "costs": self._solutions.sum_of_costs.tolist(),
        }


if __name__ == "__main__":
    serve(_Solver())
