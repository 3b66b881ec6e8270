"""Massive sweeps: policies on boards of very many configurations."""
