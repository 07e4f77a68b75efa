"""The measures of the project: `make bench` prints a table and writes results/latest.json. They are no tests.

`local` needs nothing but this machine; `cluster` is left out, by name, where there is no cluster.
"""
