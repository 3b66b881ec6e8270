"""The lake compiled for GPUs and TPUs that aren't there: what runs, how often, and a forecast."""
