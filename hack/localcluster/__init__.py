"""A Kubernetes cluster for development and tests: an existing one, kind, or one built and run on this machine.

`hack/cluster` is the command, `tests/support` uses the same modules. Only the standard library is imported, so
that a fresh machine needs nothing but Python to begin. docs/decisions/0003-local-cluster.md says why it is so.
"""
