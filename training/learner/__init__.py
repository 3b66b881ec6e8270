"""The learner: GRPO's loss, the optimizer, and padded batches."""
