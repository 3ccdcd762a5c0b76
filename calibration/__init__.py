"""How long a step takes: step shapes, cost models, model and GPU descriptions."""
