"""The worker: claims runs, executes them, writes what happened, reports it.

`main` is the composition root of the process, `worker.Worker` the object that others embed. Decisions are in
`machine` (slots, leases, stopping), `batch` (what a journal statement carries) and `schedule` (when a status is
written), all without IO; the other modules do what these say.
"""
