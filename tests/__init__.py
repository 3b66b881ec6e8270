"""A regular package, because w9-pathfinding installs another one named `tests`."""
