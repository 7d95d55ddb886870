"""Pages made from schedules, and the texts of a drawing."""

import io
from xml.etree import ElementTree

from ppsim.show.files.document import Document
from ppsim.show.files.writers.html import write


def page(*timelines, titles=None, memory=(), executions=(), cap=None, **inputs):
    out = io.BytesIO()
    names = tuple(titles or (t.schedule.name for t in timelines))
    write(
        Document(timelines, names, inputs, memory=memory, executions=executions, cap=cap),
        out,
        ".html",
    )
    return out.getvalue().decode()


def texts(svg):
    """Every text of an SVG, as a reader sees it."""
    return [
        "".join(element.itertext()).replace("\xa0", " ")
        for element in ElementTree.fromstring(svg).iter()
        if "text" in element.tag
    ]
