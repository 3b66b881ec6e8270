"""The learner: GRPO loss, optimizer and padded batches."""
