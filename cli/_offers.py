"""Values that a shell offers after Tab: names of the library, and files."""

from __future__ import annotations

import re

import click
from click.shell_completion import CompletionItem

from ppsim.ask.options import Option
from ppsim.questions import list_library

# The part of the library that has the values of an option, or of an argument.
LIBRARY = {
    "--model": "models",
    "--cluster": "clusters",
    "--software": "software",
    "[NAME|FILE]": "models",
}


def list_offers(
    declared: Option, ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """List the values of an option that begin with a word; a mark for files comes first, as bash
    then offers files where no name begins with the word.
    """
    takes_file = re.search(r"\b(FILE|DIR)\b", str(param.metavar)) is not None
    shelf = LIBRARY.get(declared.spelling)
    if shelf is None and (not takes_file or isinstance(declared.type, click.ParamType)):
        return param.type.shell_complete(ctx, param, incomplete)
    files = [CompletionItem(incomplete, type="file")] if takes_file else []
    names = list_library(shelf) if shelf else []
    return files + [CompletionItem(name) for name in names if name.startswith(incomplete)]
