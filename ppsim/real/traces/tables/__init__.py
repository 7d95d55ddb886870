"""Tables of ops, with a row for each op of a training run, read into a job."""
