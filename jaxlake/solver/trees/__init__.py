"""Conflict-based search between the bounds, on constraint trees in lanes (tier 5)."""
