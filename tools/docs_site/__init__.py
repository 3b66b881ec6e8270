"""The documentation as a site: pages are put together from the repository, checked, and built.

    python -m tools.docs_site [--check] [--output FOLDER]

- `pages` collects what the site is made of: `docs/`, the notebooks, three pages of the repository's
  root, pages of the files that any of these link to, and a page of all configuration keys.
- `links` turns links of the repository into links of the site, and finds those that lead nowhere.
- `navigation` compares the navigation in `zensical.toml` with the pages that there are.

Links are written as they work in a checkout, such as `../training/loop.py`, and never for the site.
"""
