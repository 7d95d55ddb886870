"""The version and the name of the distribution, each written in one place."""

VERSION = "0.4.0"
DISTRIBUTION = "ppsim-pipeline"
INSTALL_TORCH = f"pip install '{DISTRIBUTION}[torch]'"
INSTALL_DASK = f"pip install '{DISTRIBUTION}[dask]'"
INSTALL_OPTIMIZE = f"pip install '{DISTRIBUTION}[optimize]'"
INSTALL_TABLES = f"pip install '{DISTRIBUTION}[tables]'"
