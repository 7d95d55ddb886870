"""List all schedules, or explain one."""

from ppsim.cli._command import ask_command
from ppsim.questions.list import ListRequest, answer

command = ask_command(ListRequest, answer)
