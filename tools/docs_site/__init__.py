"""The documentation as a site: collected from the repository, checked, and built by Zensical.

    python -m tools.docs_site [--check]

- `pages` collects `docs/`, the notebooks and three pages of the repository's root, turns links of
  the repository, such as `../training/loop.py`, into links of the site, and finds broken ones.
- `generated` writes the pages of all commands and of all configuration keys.
"""
