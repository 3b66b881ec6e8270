"""The lake's programs measured on GPUs and TPUs, or compiled for them."""
