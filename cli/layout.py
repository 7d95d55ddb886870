"""Read a layout or Megatron's flags, and write the other."""

from ppsim.cli._command import ask_command
from ppsim.questions.layout import LayoutRequest, answer

command = ask_command(LayoutRequest, answer)
