"""Pallas kernels for GPUs and TPUs, bit-identical to the XLA loops."""
