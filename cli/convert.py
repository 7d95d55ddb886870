"""Convert between csv, json, traces, Mermaid and pictures."""

from ppsim.cli._command import ask_command
from ppsim.questions.convert import ConvertRequest, answer

command = ask_command(ConvertRequest, answer)
