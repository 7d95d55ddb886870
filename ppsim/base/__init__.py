"""What knows nothing of pipelines: TOML, sizes, atomic files, machine code for kernels."""

__all__ = [
    "atomic_file",
    "compiled",
    "deadline",
    "interruptible",
    "json_output",
    "notes",
    "numbers",
    "outside_code",
    "priority",
    "results",
    "signals",
    "source",
    "spawning",
    "tables",
    "text",
    "times",
    "toml",
    "typed_json",
    "units",
    "workers",
]
