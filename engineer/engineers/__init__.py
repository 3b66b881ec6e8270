"""The engineers, which share the interface in `base`."""
