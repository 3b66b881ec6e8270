"""Draw the lake of the README: one board, solved here, with its optimal plan.

    PYTHONPATH=. .venv/bin/python tools/docs_pictures.py [FILE]

The other picture, `docs/pictures/loop.svg`, is drawn by hand.
"""

import sys
from pathlib import Path
from typing import Final

import jaxlake
from jaxlake.files import write_bytes_whole

LAKE_FILE: Final = Path(__file__).resolve().parents[1] / "docs" / "pictures" / "lake.svg"

LAKE: Final = (
    "S F F A F g",
    "F H F H F F",
    "F F F F F F",
    "b H F H H F",
    "F F F F F F",
    "s F F a B G",
)
"""Four agents that cross each other's ways, in the symbols of `jaxlake.parse_grid`."""


def lake_svg() -> str:
    """Solve `LAKE` and draw its plan of least sum of costs, animated."""
    board = jaxlake.parse_grid(LAKE)
    solution = jaxlake.solve(board)
    if int(solution.status) != jaxlake.Status.OPTIMAL:
        raise ValueError(
            f"LAKE: got {jaxlake.Status(int(solution.status)).name}, needed is OPTIMAL"
        )
    return jaxlake.show(board, solution.plan, cell=30).svg


def main(file: Path = LAKE_FILE) -> None:
    """Write the picture."""
    write_bytes_whole(file, lake_svg().encode())
    print(file)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
