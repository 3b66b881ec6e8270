"""What is measured beside designs: where can be learned, and whether a model reads."""
