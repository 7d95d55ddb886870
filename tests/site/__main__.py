"""Build the documentation site: ``python -m tests.site OUT`` writes it, checks its links, and needs
no network.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.site.build import build
from tests.site.links import link_faults

USAGE = "python -m tests.site OUT: a folder that is new, empty, or a site built before"


def main(words: list[str]) -> int:
    """Build the site into a folder; 1 where a link leads nowhere, 2 where no folder is named."""
    if len(words) != 1 or words[0].startswith("-"):
        print(USAGE, file=sys.stderr)
        return 2
    out = Path(words[0]).resolve()
    if out.exists() and any(out.iterdir()) and not (out / "search.json").is_file():
        print(f"{out} has files that are no site\n{USAGE}", file=sys.stderr)
        return 2
    build(out)
    faults = link_faults(out)
    print(
        "\n".join(
            [*faults, f"{len(faults)} links are broken" if faults else f"built {out}/index.html"]
        )
    )
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
