"""Two agents: joint search, arrival staircases, bounds for more agents, and both optima."""
