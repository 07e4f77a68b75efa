"""The command `perdure`. Thin: every command reads its options and calls the layer that does the work."""
