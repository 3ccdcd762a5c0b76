"""Choices, and nothing but choices: queue order, preemption victim, routing."""
