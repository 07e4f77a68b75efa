"""The operator: turns Workflows into rows, WorkerPools into Deployments, and shows in `.status` what no worker does."""
