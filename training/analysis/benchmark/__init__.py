"""A model's answers to the benchmark's boards: asked for, kept, verified, beside published ones."""
