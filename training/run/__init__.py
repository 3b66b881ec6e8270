"""What a run leaves on disk, and what it says while it goes."""
