"""`jaxlake.verify` on plans, of which every second one has one wrong action."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxlake
from benchmarks.lake.protocol import serve
from benchmarks.lake.workers.jax_program import BATCH, ProgramContestant, build
from benchmarks.lake.workers.lake_solve import read_boards


class _Verifier(ProgramContestant):
    """The compiled verifier with boards, their optima and plans; a unit is a plan."""

    def prepare(
        self, boards: str, solve: int, count: int, steps: int, devices: int
    ) -> dict[str, Any]:
        """Solve some boards and make `count` plans of at most `steps` steps for them.

        Even plans are optimal. In odd plans one action is replaced by another one, so they usually
        fail: at the start, in the middle or at the end.

        Raises:
            RuntimeError: No board is solved, an optimal plan isn't found optimal, or every plan
                with a mistake passes.
        """
        instances = read_boards(boards, solve)
        solver = jax.jit(jax.vmap(lambda board: jaxlake.solve(board, horizon=steps)))
        solutions = jax.tree.map(np.asarray, solver(instances))
        usable = np.flatnonzero(solutions.status == jaxlake.Status.OPTIMAL)
        if not len(usable):
            raise RuntimeError(f"not one of {solve} boards was solved, so there is no plan")
        chosen = usable[np.arange(count) % len(usable)]
        instances, solutions = (
            jax.tree.map(lambda leaf: leaf[chosen], tree) for tree in (instances, solutions)
        )
        lengths = np.max(np.where(solutions.plan > 0, np.arange(1, steps + 1)[:, None], 0), (1, 2))
        lengths = np.maximum(lengths, 1)
        plans, odd = solutions.plan.copy(), np.arange(1, count, 2)
        rng = np.random.default_rng(0)
        where = (odd, rng.integers(0, lengths[odd]), rng.integers(0, plans.shape[2], len(odd)))
        plans[where] = (plans[where] + rng.integers(1, 5, len(odd))) % 5
        parsed = np.ones(count, bool)
        arguments = (instances, plans, jnp.asarray(lengths, jnp.int32), parsed, solutions)
        self.units = count
        self.program = build(jax.vmap(jaxlake.verify), arguments, (BATCH,) * 5, devices)
        outcomes = jax.tree.map(np.asarray, self.program())
        if not outcomes.optimal_sum_of_costs[::2].all():
            raise RuntimeError("an optimal plan was not found optimal")
        if outcomes.valid[1::2].all():
            raise RuntimeError("no plan with a mistake was found to fail")
        return {
            "compile_seconds": self.program.compile_seconds,
            "mean_length": float(lengths.mean()),
            "valid_share": float(outcomes.valid.mean()),
        }


if __name__ == "__main__":
    serve(_Verifier())
