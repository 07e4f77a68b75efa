"""Declared steps (`spec.steps`): planned here, run by the same engine as Python workflows."""

from perdure.declarative.run import register

__all__ = ["register"]
