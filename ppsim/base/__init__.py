"""What knows nothing of pipelines: TOML, sizes, atomic files, machine code for kernels."""
