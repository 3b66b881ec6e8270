"""How the trainer's weights reach vLLM, and the checksums that show that they did."""
