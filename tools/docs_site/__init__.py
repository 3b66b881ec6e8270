"""Collect the documentation from the repository, check it, and build the site with Zensical.

    python -m tools.docs_site [--check]

- `pages` collects `docs/`, the notebooks and pages from the repository's root. It turns repository
  links such as `../training/loop.py` into site links and reports broken ones.
- `generated` writes the reference pages of commands and configuration keys.
"""
