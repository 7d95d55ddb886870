"""Show a model: its sizes, parameters, FLOPs, and its operators."""

from ppsim.cli._command import ask_command
from ppsim.questions.model import ModelRequest, answer

command = ask_command(ModelRequest, answer)
