"""Conflict-based search between the bounds: constraint trees in lanes (tier 5)."""
