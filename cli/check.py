"""Prove a schedule file, or show its faults."""

from ppsim.cli._command import ask_command
from ppsim.questions.check import CheckRequest, answer

command = ask_command(CheckRequest, answer)
