"""Studies: engineers x seeds on one budget from one warm start, and what the comparison says.

`config.py` says what a study is, `directory.py` what it leaves on disk, `runner.py` carries it out.
`reading.py` turns finished runs into arrays, `measures.py` and `bootstrap.py` are pure functions on
them, `results.py` puts the numbers together, `figures.py` and `report.py` show them.
"""
