"""Compare schedules on the same devices."""

from ppsim.cli._command import ask_command
from ppsim.questions.compare import CompareRequest, answer

command = ask_command(CompareRequest, answer)
