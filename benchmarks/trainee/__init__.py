"""The GRPO update compiled for GPUs and TPUs that are not there: memory, traffic, a forecast."""
