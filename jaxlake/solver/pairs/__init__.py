"""Two agents: joint search, staircases of arrivals, bounds for more agents, both optima."""
