"""`jaxlake.solve` on boards from a file, all of them in one call.

It gives up a board when `generate` would, after as many replanned agents, and not as late as it
does by default: a batch waits for its hardest boards, and the peer gives up a board, too.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxlake
from benchmarks.lake.protocol import serve
from benchmarks.lake.workers.jax_program import BATCH, ProgramContestant, build
from jaxlake.solver.many_slots import candidate_budgets


def read_boards(path: str, count: int | None = None) -> jaxlake.Instance:
    """Read the first `count` boards of a file of `write_boards` (None: all) as one batch."""
    arrays = {name: leaf[:count] for name, leaf in np.load(path).items()}
    B, size = arrays["holes"].shape[:2]
    return jaxlake.Instance(
        holes=arrays["holes"],
        size=jnp.full(B, size, jnp.int32),
        starts=arrays["starts"],
        goals=arrays["goals"],
        agent_mask=jnp.ones(arrays["starts"].shape[:2], bool),
    )


def solve_drawn(board: jaxlake.Instance) -> jaxlake.Solution:
    """Solve a board with the budget that `generate` has for its candidates."""
    return jaxlake.solve(board, max_expansions=candidate_budgets(board))


class _Solver(ProgramContestant):
    """The compiled solver with its boards; a unit is a board solved or proved unsolvable."""

    def prepare(self, boards: str, count: int, devices: int) -> dict[str, Any]:
        """Read and compile; the first call, which warms up, also gives the answers to compare."""
        instances = read_boards(boards, count)
        self.program = build(jax.vmap(solve_drawn), (instances,), (BATCH,), devices)
        self._solutions = jax.tree.map(np.asarray, self.program())
        status = self._solutions.status
        self.units = int(np.sum(status != jaxlake.Status.UNKNOWN))
        counts = {s.name.lower(): int(np.sum(status == s)) for s in jaxlake.Status}
        return {"compile_seconds": self.program.compile_seconds, "boards": count, **counts}

    def answers(self) -> dict[str, Any]:
        """Return each board's status and least sum of costs."""
        return {
            "status": self._solutions.status.tolist(),
            "costs": self._solutions.sum_of_costs.tolist(),
        }


if __name__ == "__main__":
    serve(_Solver())
