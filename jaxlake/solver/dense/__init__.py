"""Search of boards with few cells, by sets of joint states, one cell per agent (tier 6)."""
