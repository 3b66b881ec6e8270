"""What the pages of runs and of studies share: one document, its styles, and its charts."""
