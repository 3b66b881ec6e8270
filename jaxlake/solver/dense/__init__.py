"""Boards on few cells: sets of all their joint states, as bits (tier 6)."""
