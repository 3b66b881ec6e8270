"""Environments other than the lake, as a user would write them."""
