"""The closed forms that schedules print, read as what they say: a number, a value, a condition.

``span bubble (P-1)(t_F - t_W)  for M >= 2P-1 and t_W <= t_F`` is the number ``span bubble``, the
value before the two blanks, and two clauses that must hold. Factors side by side are multiplied;
``N | M`` means that N divides M.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import floor
from types import CodeType
from typing import Any

FUNCTIONS: dict[str, Any] = {"min": min, "max": max, "floor": floor}
NAMES = {"t_F&B": "tfb", "t_F": "tf", "t_B": "tb", "t_I": "ti", "t_W": "tw"}
TOKEN = re.compile(
    r"t_F&B|t_[FBIW]|device|min|max|floor|[PVMNK]|\d+|<=|>=|[-+*/(),=]|(?P<wrong>\S)"
)
FORM = re.compile(
    r"(?P<number>span bubble|longest idle|) ?(?P<value>[^ ].*?)(?:  for (?P<condition>.*))?"
)
WORDS = re.compile(r" (stage activations|slice activations|on every device)(?=  for |$)")
NOTE = re.compile(r" \(the [^()]*\)$")


@dataclass(frozen=True)
class ClosedForm:
    """One printed form.

    Attributes:
        number: what it is the value of; empty for the bubble, makespan - ideal, and for peaks.
        value: an expression over P, V, M, N, K, device and times.
        holds: expressions that are all true where the form is.
        fused: whether it depends on the time of a pair.
    """

    number: str
    value: CodeType
    holds: tuple[CodeType, ...]
    fused: bool

    def at(self, size: Any) -> float:
        """The value for these sizes and times."""
        return eval(self.value, FUNCTIONS, vars(size))

    def applies(self, size: Any) -> bool:
        """Whether the condition holds for these sizes and times."""
        return all(eval(clause, FUNCTIONS, vars(size)) for clause in self.holds)


def read_form(text: str) -> ClosedForm:
    """Read a printed form.

    Raises:
        ValueError: the text is no closed form.
    """
    found = FORM.fullmatch(WORDS.sub("", text))
    if not found:
        raise ValueError(f"no closed form: {text!r}")
    condition = NOTE.sub("", found["condition"] or "")
    clauses = re.split(r" and |, (?![^()]*\))", condition) if condition else []
    value = found["value"]
    return ClosedForm(
        found["number"], read_expression(value), tuple(map(read_clause, clauses)), "t_F&B" in value
    )


def read_clause(text: str) -> CodeType:
    """Read one condition: divides, or a chain of comparisons."""
    part, divides, whole = text.partition(" | ")
    if divides:
        return compile(f"{whole} % {part} == 0", text, "eval")
    return read_expression(text)


def read_expression(text: str) -> CodeType:
    """Read an expression, in which factors side by side are multiplied."""
    words: list[str] = []
    for token in TOKEN.finditer(text):
        if token["wrong"]:
            what = f"not a closed form: {text!r} at {token[0]!r}"
            raise ValueError(f"{what}; expected e.g. (P-1)(t_F + t_B), see CONTRIBUTING.md")
        word = NAMES.get(token[0], "==" if token[0] == "=" else token[0])
        ends_factor = (
            bool(words)
            and (words[-1] == ")" or words[-1][-1].isalnum())
            and words[-1] not in FUNCTIONS
        )
        if ends_factor and (word == "(" or word[0].isalnum()):
            words.append("*")
        words.append(word)
    try:
        return compile(" ".join(words), text, "eval")
    except SyntaxError as error:
        raise ValueError(f"no closed form: {text!r}") from error
