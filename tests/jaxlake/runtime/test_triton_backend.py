"""The lake without Pallas's Triton backend, on a simulated GPU."""

import subprocess
import sys

SCRIPT = """
import sys
sys.modules["jax.experimental.pallas.triton"] = None  # as if a later JAX had removed it
import jax, jaxlake
from jaxlake.solver import limits_for
assert limits_for("tpu").kernels and not limits_for("gpu").kernels
jax.default_backend = lambda: "gpu"
board = jaxlake.parse_grid(["S F G", "s H F", "g F F"])
print(jaxlake.solve(board, horizon=8).sum_of_costs)
"""


def test_solve_without_triton_warns_once_and_uses_loops():
    process = subprocess.run(
        [sys.executable, "-W", "always", "-c", SCRIPT], capture_output=True, text=True
    )
    assert process.stdout == "3\n", process.stderr
    assert process.stderr.count("triton cannot be imported") == 1
