"""The learner: GRPO and supervised losses, the optimizer, and padded batches."""
