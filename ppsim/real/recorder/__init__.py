"""Recorder of training scripts: marks, hooks on pipeline runtimes, and a file for each process."""
