"""Measurements that anyone can repeat; they run from a checkout of the repository."""
