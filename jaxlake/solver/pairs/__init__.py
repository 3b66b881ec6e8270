"""Solver for two agents, and the bounds on more agents that pairs prove."""
