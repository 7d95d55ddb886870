"""Time one schedule and show it."""

from ppsim.cli._command import ask_command
from ppsim.questions.run import RunRequest, answer

command = ask_command(RunRequest, answer)
