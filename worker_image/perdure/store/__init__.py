"""All SQL of the project: one statement per file, one module per table's concern, migrations.

Called by the worker, the operator and the command line; knows rows, not Kubernetes and not user code.
"""
