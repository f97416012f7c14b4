"""Training: a plan, a task, one loop."""
