"""What a training script imports to record itself: marks, hooks on runtimes of pipelines, and the
file of a process.
"""
