"""A model and a cluster: their descriptions, what training costs on them in time and memory, and published runs."""
