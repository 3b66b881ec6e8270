"""Conflict-based search on constraint trees, between the bounds that `pairs` proves (tier 5)."""
