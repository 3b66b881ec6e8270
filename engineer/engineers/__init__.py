"""Who may write the next configuration, all behind the interface in `base`.

`catalogue` makes the engineers that need nothing but a run's settings, by name.
"""
