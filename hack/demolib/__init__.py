"""`make demo`: the whole path on a real cluster, from `kubectl apply` over a killed worker to the proof in Postgres.

Run by `hack/demo` with the Python of .venv. Each module does one part; `story.py` is the order they come in.
"""
