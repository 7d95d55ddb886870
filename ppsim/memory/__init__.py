"""Memory of devices over time, in activations or bytes."""
