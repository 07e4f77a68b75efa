"""Metrics, logs and the small HTTP server that shows them: used by worker and operator alike, known by neither store
nor resources. Metrics are declared once in `names`; only `prometheus` knows the library that carries them.
"""
