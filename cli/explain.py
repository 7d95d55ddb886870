"""Say why devices are idle, what decides the time, what would help."""

from ppsim.cli._command import ask_command
from ppsim.questions.explain import ExplainRequest, answer

command = ask_command(ExplainRequest, answer)
