"""jaxlake.verify on plans: optimal ones, and such in which one action was changed."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxlake
from benchmarks.lake.accelerated import BATCH, build, memory
from benchmarks.lake.ours.solving import read_boards
from benchmarks.lake.protocol import repeat, serve


class _Contest:
    """The compiled verifier with boards, their optima and plans."""

    def prepare(
        self, boards: str, solve: int, count: int, steps: int, devices: int | None
    ) -> dict[str, Any]:
        """Solve some boards and make `count` plans of at most `steps` steps for them.

        Even plans are optimal. Odd plans have one action of theirs replaced by another one, so
        they usually fail: at the start, in the middle or at the end.

        Raises:
            RuntimeError: no board is solved, an optimal plan isn't found optimal, or every plan
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
        self._program = build(jax.vmap(jaxlake.verify), arguments, (BATCH,) * 5, devices)
        outcomes = jax.tree.map(np.asarray, self._program())
        touched = sum(leaf.nbytes for leaf in jax.tree.leaves((arguments, outcomes)))
        if not outcomes.optimal_sum_of_costs[::2].all():
            raise RuntimeError("an optimal plan was not found optimal")
        if outcomes.valid[1::2].all():
            raise RuntimeError("no plan with a mistake was found to fail")
        self._count = count
        return {
            "compile_seconds": self._program.compile_seconds,
            "bytes_per_unit": touched / count,
            "mean_length": float(lengths.mean()),
            "valid_share": float(outcomes.valid.mean()),
        }

    def measure(self, seconds: float) -> dict[str, Any]:
        """Verify the plans again and again; a unit is a plan."""

        def call() -> float:
            self._program()
            return self._count

        return repeat(call, seconds)

    def finish(self) -> dict[str, Any]:
        """Say the memory."""
        return memory()


if __name__ == "__main__":
    serve(_Contest())
