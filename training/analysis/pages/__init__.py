"""Shared parts of HTML reports: document, styles and charts."""
