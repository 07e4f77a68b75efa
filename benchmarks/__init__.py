"""The measures of the project: `make bench` prints tables, and writes results/latest.json and docs/benchmarks.md.

They are no tests. `parts/` has one module for each table, `peers/` one for each engine that is measured beside this
one; `host.py` is the place where all of them are taken, `goals.py` says what was wanted.
"""
