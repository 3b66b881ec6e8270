"""The engineer inside other trainers, each with a loop around an artificial learner.

docs/how_to/plug_in.md describes them.
"""
