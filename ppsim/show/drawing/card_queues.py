"""Queues as SVG for the notebook card of a file: ops in order, faulty ones outlined."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ppsim.core.ops import Kind
from ppsim.show.drawing.card_chart import LETTER, LINE, MOST_NUMBERS, NAMES, WIDE, frame, text
from ppsim.show.drawing.palette import DEFAULT, HIGHLIGHT, IN_ROW, text_colour

ROW = 15.0  # pixels of a device's row
MOST_ROWS = 16  # devices drawn
MOST_ACROSS = 48  # ops of a queue drawn
WIDEST = 26.0  # largest width of an op in pixels
OTHER = "#8A8F98"  # of sends, receives and other ops outside a chart's compute row


@dataclass(frozen=True)
class Queues:
    """Ops of every device in queue order, device-major, with the faulty ones.

    Attributes:
        offsets: the first op of each device, then the number of ops, shape (P + 1,).
        kind: shape (ops,), codes of :class:`ppsim.core.ops.Kind`.
        microbatch: shape (ops,).
        faulty: indices of faulty ops.
        devices: devices with a fault that concerns no op in the queue, such as a missing op.
    """

    offsets: NDArray[np.int64]
    kind: NDArray[np.uint8]
    microbatch: NDArray[np.int32]
    faulty: Collection[int] = ()
    devices: Collection[int] = ()

    @property
    def shown_devices(self) -> list[int]:
        """The devices to draw: all, or as many as fit, those with a fault first."""
        count = len(self.offsets) - 1
        owners = np.searchsorted(self.offsets, sorted(self.faulty), "right") - 1
        first = dict.fromkeys([*owners.tolist(), *sorted(self.devices), *range(count)])
        return sorted([*first][:MOST_ROWS])

    @property
    def first_place(self) -> int:
        """The position in the queues at which the picture begins: 0, or before the first fault."""
        ops = np.array(sorted(self.faulty), np.int64)
        places = ops - self.offsets[np.searchsorted(self.offsets, ops, "right") - 1]
        longest = int(np.diff(self.offsets).max(initial=0))
        wanted = int(places.min(initial=longest)) - MOST_ACROSS // 4 if len(ops) else 0
        return max(0, min(wanted, longest - MOST_ACROSS))


def queues_svg(queues: Queues) -> str:
    """Return the queues as SVG, one below the other, at most 640 pixels wide."""
    devices, first = queues.shown_devices, queues.first_place
    longest = int(np.diff(queues.offsets).max(initial=0))
    last = min(longest, first + MOST_ACROSS)
    wide = min(WIDEST, (WIDE - NAMES) / max(1, last - first))
    numbers = LETTER * len(str(int(queues.microbatch.max(initial=0)))) + 2 <= wide
    numbers = numbers and len(devices) * (last - first) <= MOST_NUMBERS
    boxes, letters = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    outlines, names = list[str](), list[str]()
    for row, device in enumerate(devices):
        top = LINE + row * ROW
        look = f'fill="{HIGHLIGHT[0]}" font-weight="bold"' if device in queues.devices else ""
        names.append(text(0, top + ROW / 2 + 3.5, f"dev {device}", look))
        begin, end = int(queues.offsets[device]), int(queues.offsets[device + 1])
        for op in range(begin + first, min(end, begin + last)):
            x = NAMES + wide * (op - begin - first)
            kind = Kind(queues.kind[op])
            fill = DEFAULT.fill(kind)[0] if kind in IN_ROW else OTHER
            box = f"M{x:.1f} {top:.1f}h{wide - 0.6:.1f}v{ROW - 1:.1f}h-{wide - 0.6:.1f}z"
            boxes[fill].append(box)
            if op in queues.faulty:
                outlines.append(box)
            if numbers and queues.microbatch[op] >= 0:
                place = f'x="{x + wide / 2:.0f}" y="{top + ROW / 2 + 2.5:.1f}"'
                letters[text_colour(fill)].append(f"<text {place}>{queues.microbatch[op]}</text>")
    parts = [text(NAMES, LINE - 4, _title(queues, first, last, longest)), *names]
    parts += [f'<path fill="{fill}" d="{"".join(path)}"/>' for fill, path in boxes.items()]
    middle = 'text-anchor="middle" font-size="9"'
    parts += [f'<g fill="{ink}" {middle}>{"".join(each)}</g>' for ink, each in letters.items()]
    pen = f'fill="none" stroke="{HIGHLIGHT[0]}" stroke-width="2.5"'
    parts += [f'<path {pen} d="{"".join(outlines)}"/>'] if outlines else []
    top = LINE + len(devices) * ROW + 4
    parts.append(_legend(queues, top))
    return frame(parts, top + LINE, "the queues of the file")


def _title(queues: Queues, first: int, last: int, longest: int) -> str:
    """Return the picture's title, with the ops and devices that it leaves out."""
    found = "queues in order"
    count = len(queues.offsets) - 1
    if last - first < longest:
        found += f", ops {first} to {last - 1} of {longest}"
    if count > MOST_ROWS:
        found += f", {MOST_ROWS} of {count} devices"
    if queues.faulty:
        found += "; faults are outlined"
    if queues.devices:
        found += "; a red device lacks an op, or has a fault as a whole"
    return found


def _legend(queues: Queues, top: float) -> str:
    """Return a box and a name for each kind that occurs."""
    parts, x = list[str](), float(NAMES)
    kinds = [Kind(code) for code in np.unique(queues.kind).tolist()]
    entries = {
        (kind.info.legend if kind in IN_ROW else "Message or other"): (
            DEFAULT.fill(kind)[0] if kind in IN_ROW else OTHER
        )
        for kind in kinds
    }
    for name, fill in entries.items():
        parts.append(f'<rect x="{x:.0f}" y="{top + 2:.1f}" width="10" height="9" fill="{fill}"/>')
        parts.append(text(x + 14, top + LINE - 4, name))
        x += 14 + 6.1 * len(name) + 14
    return "".join(parts)
