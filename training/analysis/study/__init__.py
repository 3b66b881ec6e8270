"""Studies: engineers x seeds on one budget from one warm start, compared with intervals."""
