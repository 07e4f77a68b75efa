"""Perdure: durable workflows as Kubernetes resources, at Postgres speed."""
