"""Pallas kernels for GPUs and TPUs; each gives bit for bit what XLA's loops give."""
