"""Boards with few cells: sets of all joint states as bits (tier 6)."""
