"""Settings of JAX that the lake needs: devices, flags, random keys, batch axes."""
