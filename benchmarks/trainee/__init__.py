"""Benchmarks of the trainee's update: on accelerators, and against TRL's on CPUs."""
