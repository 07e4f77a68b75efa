"""The custom resources of the group perdure.dev: models, checks, conditions, status and their CRDs.

Pure: no database, no HTTP, no clock. The operator parses and accepts resources through this package, worker and
operator project rows to `.status` through it, and `python -m perdure.resources.crdgen` writes the CRDs from the
same models, so that what the API server checks and what the code checks cannot drift apart.
"""
