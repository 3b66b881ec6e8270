"""Who may write the next configuration, all behind the interface in `base`."""
