"""The other side of a comparison, a file each; it runs in the peer's own environment."""
