"""Make the table from which jaxlake looks up acceptance rates.

python -m tools.feasibility_table > jaxlake/generator/feasibility_table.json
"""

import json
import sys
from dataclasses import asdict
from itertools import product

import jaxlake
from jaxlake.board.limits import holes_on_board
from jaxlake.generator import survey
from jaxlake.runtime.random_keys import threefry_key
from jaxlake.solver import DEFAULT_HORIZON

SIZES = tuple(range(2, 11))
HOLE_RATIOS = tuple(percent / 100 for percent in range(0, 51, 5))
SEED, NUM_AGENTS, NUM_CANDIDATES = 0, 2, 4096


def list_kinds() -> list[tuple[int, int, int]]:
    """List the feasible kinds (num_agents, size, holes) that the table holds."""
    kinds = [
        (NUM_AGENTS, size, holes_on_board(size, ratio))
        for size, ratio in product(SIZES, HOLE_RATIOS)
        if jaxlake.infeasibility(size, ratio, NUM_AGENTS) is None
    ]
    return list(dict.fromkeys(kinds))


def main() -> None:
    """Write the table as JSON text, one kind per line."""
    strata = survey(threefry_key(SEED), list_kinds(), candidates=NUM_CANDIDATES)
    lines = ",\n".join(json.dumps(asdict(stratum)) for stratum in strata)
    header = f'"version": 1, "seed": {SEED}, "horizon": {DEFAULT_HORIZON}'
    sys.stdout.write(f'{{{header}, "strata": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
