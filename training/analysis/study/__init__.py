"""Studies: engineers x seeds on one budget from one warm start, and what the comparison says.

`config.py` says what a study is, `directory.py` what it leaves on disk, `runner.py` carries it out.
`reading.py` turns finished runs into arrays, `bootstrap.py` gives intervals, `results.py` computes
all numbers, `figures.py` and `report.py` show them.
"""
