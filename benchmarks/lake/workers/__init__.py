"""The sides of a comparison, one module each: the lake's own, and those of other libraries.

A module runs in a process of its own, in its own environment. Importing one outside of that
environment fails.
"""
