"""Find the best schedule for given costs, placement and memory, and prove how good it is."""
