"""Pallas kernels: distances, prioritised planning, joint searches and constraint trees.

Each is one launch for many boards.

A board is a lane, as everywhere in the solver, and a program works on a few hundred of them until
its slowest is done. Sets of cells are words in registers, times and cells of a loop are the same
for all lanes of a program, so that nothing is gathered: the same code serves GPUs (Triton), TPUs
(Mosaic) and, interpreted, CPUs. Only lanes that search constraint trees go to places of their own,
which a TPU's vector unit can't. Every kernel gives bit for bit what XLA's loops give.
"""
