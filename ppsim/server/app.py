"""The live page's application: what it answers, to whom, and how much it does for them."""

from __future__ import annotations

import os
import re
import threading
import zlib
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ppsim.base.json_output import dump_json
from ppsim.errors import PpsimError
from ppsim.files.document import Document, formats
from ppsim.files.page_parts import encode_column
from ppsim.files.writers.html import contents

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

MOST_WAITING = 8  # requests for work at a time; more are told to come again
LARGEST_DROP = 4 << 20
LARGEST_UNPACKED = 32 << 20
MOST_DROPS = 50
DROPPED = "dropped:"  # what the name of a file begins with that was dropped on the page
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

Show = Callable[[str, Path], Document]


def make_app(page: bytes, show: Show, folder: Path, hosts: frozenset[str], *, any_address: bool = False) -> Starlette:
    """Make the application.

    Args:
        page: what ``/`` answers.
        show: makes the document of a line; raises PpsimError for one that it refuses.
        folder: where files that are dropped on the page are kept while the server runs.
        hosts: names and ports under which the page may be asked for, such as ``127.0.0.1:8765``; others are refused,
            so that a page of another site cannot reach it by a name of its own.
        any_address: whether it may be asked for under every numeric address too, which no site can name as its own.
    """
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import ClientDisconnect
    from starlette.responses import Response
    from starlette.routing import Route

    turn, waiting = threading.Lock(), threading.Semaphore(MOST_WAITING)

    def in_turn(work: Callable[[], Response]) -> Response:
        if not waiting.acquire(blocking=False):
            return _refusal(503, "the server is busy with other requests", "try again")
        try:
            with turn:
                return work()
        except PpsimError as error:
            return _refusal(422, str(error).replace(f"{folder}{os.sep}", ""), error.hint)
        finally:
            waiting.release()

    async def index(request: Request) -> Response:
        return Response(page, media_type="text/html")

    async def view(request: Request) -> Response:
        line = request.query_params.get("line", "")

        def work() -> Response:
            found = contents(show(line, folder), encode_column)
            return Response(dump_json(found), media_type="application/json")

        return await run_in_threadpool(in_turn, work)

    async def export(request: Request) -> Response:
        line, suffix = request.query_params.get("line", ""), request.query_params.get("form", "")

        def work() -> Response:
            form = formats().get(suffix)
            if form is None:
                return _refusal(422, f"there is no format '{suffix[:20]}'", " ".join(sorted(formats())))
            out = BytesIO()
            form.write(show(line, folder), out, suffix)
            named = {"Content-Disposition": f'attachment; filename="ppsim{suffix}"'}
            return Response(out.getvalue(), media_type="application/octet-stream", headers=named)

        return await run_in_threadpool(in_turn, work)

    async def drop(request: Request) -> Response:
        name = request.query_params.get("name", "")
        if not _NAME.fullmatch(name):
            return _refusal(422, "a file's name has letters, digits, dots, dashes and underscores", "rename it")
        content = bytearray()
        try:
            async for chunk in request.stream():
                content += chunk
                if len(content) > LARGEST_DROP:
                    return _refusal(
                        413, f"'{name}' is larger than {LARGEST_DROP >> 20} MiB", "ppsim run reads larger files"
                    )
        except ClientDisconnect:
            return _refusal(400, f"'{name}' did not come whole", "drop it again")
        if _unpacks_beyond(bytes(content), LARGEST_UNPACKED):
            return _refusal(413, f"'{name}' unpacks to more than {LARGEST_UNPACKED >> 20} MiB", "ppsim run reads it")
        if len(list(folder.iterdir())) >= MOST_DROPS and not (folder / name).exists():
            return _refusal(422, f"{MOST_DROPS} files were dropped already", "start ppsim serve again")
        (folder / name).write_bytes(content)

        def work() -> Response:
            return Response(dump_json({"name": name, **_shape_of(name)}), media_type="application/json")

        return await run_in_threadpool(in_turn, work)

    def _shape_of(name: str) -> dict[str, int]:
        """The shape that a file of ops states, for the controls; nothing for a block, which takes theirs."""
        if name.endswith(".toml"):
            return {}
        try:
            schedule = show(f"{DROPPED}{name}", folder).timelines[0].schedule
        except PpsimError:
            (folder / name).unlink()
            raise
        return {"--devices": schedule.n_devices, "--mb": schedule.n_microbatches}

    app = Starlette(
        routes=[
            Route("/", index),
            Route("/view", view),
            Route("/export", export),
            Route("/drop", drop, methods=["POST"]),
        ]
    )
    app.add_middleware(_Guard, hosts=hosts, any_address=any_address)
    return app


def _refusal(status: int, message: str, hint: str) -> Response:
    from starlette.responses import Response

    return Response(dump_json({"error": message, "hint": hint}), status_code=status, media_type="application/json")


def _unpacks_beyond(content: bytes, most: int) -> bool:
    """Whether a gzipped file holds more than that."""
    if not content.startswith(b"\x1f\x8b"):
        return False
    unpacking = zlib.decompressobj(wbits=31)
    try:
        return len(unpacking.decompress(content, most + 1)) > most
    except zlib.error:  # its reader says so
        return False


class _Guard:
    """Answer only who asks under a name of this server and from no other site; send the headers of every answer."""

    def __init__(self, app: Any, hosts: frozenset[str], any_address: bool) -> None:
        self.app, self.hosts, self.any_address = app, hosts, any_address

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return None
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        origin, host = headers.get(b"origin"), headers.get(b"host", "")
        foreign = (
            not (host in self.hosts or (self.any_address and _is_numeric(host)))
            or (origin is not None and origin.partition("://")[2] != host)
            or headers.get(b"sec-fetch-site", "none") not in ("same-origin", "none")
        )

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_RAW_HEADERS]
            await send(message)

        if foreign:
            answer = _refusal(
                403, "asked under another name, or from another site", "the address that ppsim serve prints"
            )
            return await answer(scope, receive, send_with_headers)
        return await self.app(scope, receive, send_with_headers)


def _is_numeric(host: str) -> bool:
    """Whether a host is an address in numbers, with a port or without."""
    import ipaddress

    try:
        ipaddress.ip_address(re.sub(r":\d+$", "", host).strip("[]"))
    except ValueError:
        return False
    return True


_RAW_HEADERS = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
