"""Every program that `make demo` runs on its device, compiled for one that isn't there."""
