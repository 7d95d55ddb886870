"""Tables of ops, a row per op of a training run, read into a job."""
