"""The recipe that made `jaxlake-base`: imitate solver plans and the rule's designs.

    python -m examples.base_model examples/base_model/recipe.yaml

`recipe` is the configuration, `boards` and `designs` make the examples, `scores` measures how well
designs are imitated, and `train` is the loop.
"""
