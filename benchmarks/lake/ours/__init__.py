"""The lake's side of a comparison, a file each."""
