"""Recorder for training scripts: marks, hooks on pipeline runtimes, and the file of a process."""
