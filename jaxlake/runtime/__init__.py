"""JAX settings of the lake: devices, XLA flags, random keys and batch axes."""
