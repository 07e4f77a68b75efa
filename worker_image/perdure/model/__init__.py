"""Pure vocabulary: states, rows, outcomes, retry. No IO, no clock; imported by every layer above."""
