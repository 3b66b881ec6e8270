"""The lake against its peers, side by side in one run: `jaxlake bench lake`."""
