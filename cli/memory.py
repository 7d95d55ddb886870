"""Memory of every device over time, and whether it fits."""

from ppsim.cli._command import ask_command
from ppsim.questions.memory import MemoryRequest, answer

command = ask_command(MemoryRequest, answer)
