"""Transfer of the trainer's weights to vLLM, verified by checksums."""
