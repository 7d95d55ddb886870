"""Questions about training a model on a cluster."""
