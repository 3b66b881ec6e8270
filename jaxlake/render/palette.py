"""Colours of pictures, from Okabe and Ito, Color Universal Design (2008).

Colour-blind readers can distinguish them. Agents also differ by number, and holes by shape.
"""

from typing import Final

AGENT_COLOURS: Final = (
    ("#0072B2", "#ffffff"),
    ("#D55E00", "#10151a"),
    ("#009E73", "#10151a"),
    ("#CC79A7", "#10151a"),
    ("#E69F00", "#10151a"),
)
"""(disc, number on the disc) of agents 0 to 4, with a contrast ratio of at least 4.5."""

MARK: Final = "#F0E442"
"""Colour of failures, which no agent has."""

INK: Final = "#10151a"
QUIET: Final = "#6a7885"
PAPER: Final = "#ffffff"
GROUND: Final = "#c3d6e4"
ICE: Final = "#eef5fa"
HOLE: Final = "#16222d"
PIT: Final = "#45596a"
SEGMENT: Final = "#c8d3dc"
