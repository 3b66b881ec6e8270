"""A run's files, checkpoints, logs and terminal output."""
