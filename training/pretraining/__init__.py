"""Pretraining of the base model: solver plans and the rule's designs, until both are mastered.

`schema` is its configuration, `boards` and `designs` make what it imitates, `scores` says how well
it is imitated, and `pretrain` is the loop.
"""
