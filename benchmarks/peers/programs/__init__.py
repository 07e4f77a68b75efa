"""What runs in the peers' own environments: a worker and a starter each, as their own documentation has them.

None of this is imported by the benchmarks; each is a program that says READY when it is, and then one line an answer.
"""
