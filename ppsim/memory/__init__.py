"""What devices hold over time, in activations or bytes."""
