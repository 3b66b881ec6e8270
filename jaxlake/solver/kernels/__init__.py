"""Pallas kernels: distances, prioritised planning, joint searches and constraint trees.

Each is one launch for many boards.

Of what is short, distances and plans, a program works on as many boards as it has lanes until its
slowest is done: sets of cells are words in registers, and nothing is gathered. A joint search has
one lane for each cell of a board, a constraint tree one for each node in hand. The same code serves
GPUs (Triton), TPUs (Mosaic) and, interpreted, CPUs. Only lanes that search constraint trees go to
places of their own, which a TPU's vector unit can't. Every kernel gives bit for bit what XLA's
loops give.
"""
