"""The engineer inside other trainers, each demonstrated with an artificial learner.

docs/how_to/plug_in.md describes them.
"""
