"""How the operator talks to the API server: one HTTP layer, and one module per thing that is written."""
