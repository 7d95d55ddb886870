"""The live page's application: its answers, its access rules, and its limits."""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from importlib.resources import files
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ppsim.base.deadline import TimeOver, end_when
from ppsim.base.json_output import dump_json
from ppsim.base.unpack.json_objects import decode_object
from ppsim.base.unpack.limits import read_at_most
from ppsim.errors import InputError, PpsimError
from ppsim.show.files.document import Document, PageExplanation, formats
from ppsim.show.files.page_parts import encode_column
from ppsim.show.files.writers.html import contents, story_object

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

MOST_WAITING = 8  # requests that run or wait at a time; further ones get status 503
# documents computed at a time, so that a slow search for one does not block the others
MOST_SHOWN = 3
POLL_S = 0.02  # seconds between checks whether a waiting request may run
LOOK_S = 0.05  # seconds between checks whether the client of a running request is still connected
LARGEST_ASKED = 8 << 10  # bytes of a request's fields
LARGEST_DROP = 4 << 20  # bytes of a dropped file
LARGEST_READ = 32 << 20  # bytes of a decompressed file; they also limit its cells and objects
MOST_DROPS = 50
DROPPED = "dropped:"  # prefix of the names of files dropped on the page
LONGEST_STEM = 60  # characters of a name before its suffix and the number of a copy
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'unsafe-inline'; style-src "
    "'unsafe-inline'; "
    "img-src data: blob:; connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors "
    "'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

Show = Callable[[Mapping[str, Any], Path], Document]
Explain = Callable[[Mapping[str, Any], Path], PageExplanation]
Plan = Callable[[Mapping[str, Any]], bytes]
# copies a watched file again if it changed; returns its name and its number of changes
Changes = Callable[[], tuple[str, int]]


def make_app(
    page: bytes,  # served at ``/``
    # makes the document of a request's fields; raises PpsimError for fields that it refuses
    show: Show,
    folder: Path,  # stores files that are dropped on the page while the server runs
    # host names with ports that requests may use, such as ``127.0.0.1:8765``; others are refused,
    # so that another site cannot reach the page by a name that resolves to this machine
    hosts: frozenset[str],
    *,
    # returns the explanation of the first schedule, and advice; None for a page that does not ask
    explain: Explain | None = None,
    # makes the page of plans for a model on a cluster; None for a page without them
    plan: Plan | None = None,
    # whether requests may use any numeric address too: those cannot be another site's name
    any_address: bool = False,
    changes: Changes | None = None,  # of a watched file; None if no file is watched
) -> Starlette:
    """Make the application."""
    from starlette.applications import Starlette
    from starlette.responses import Response
    from starlette.routing import Route

    async def index(request: Request) -> Response:
        return Response(page, media_type="text/html")

    waiting = (files(__package__) / "plan_wait.html").read_bytes()

    async def wait(request: Request) -> Response:
        """Return a page that appears at once, requests the plans, and then shows them."""
        return Response(waiting, media_type="text/html")

    async def refuse(request: Request, error: Exception) -> Response:
        return _refusal(*error.args)

    answers = _Answers(show, folder, explain, plan, changes)
    app = Starlette(
        routes=[
            Route("/", index),
            Route("/changes", answers.changed),
            Route("/view", answers.view, methods=["POST"]),
            *([Route("/why", answers.why, methods=["POST"])] if explain else ()),
            *([Route("/plan", wait), Route("/planned", answers.plans)] if plan else ()),
            Route("/export", answers.export, methods=["POST"]),
            Route("/drop", answers.drop, methods=["POST"]),
        ],
        exception_handlers={_Refused: refuse},
    )
    app.add_middleware(_Guard, hosts=hosts, any_address=any_address)
    return app


class _Answers:
    """Request handlers; each kind of work has a limit on how many run at a time."""

    def __init__(
        self,
        show: Show,
        folder: Path,
        explain: Explain | None,
        plan: Plan | None,
        changes: Changes | None,
    ) -> None:
        self.show, self.folder, self.explain, self.plan, self.changes = (
            show,
            folder,
            explain,
            plan,
            changes,
        )
        self.places, self.shown = asyncio.Semaphore(MOST_WAITING), asyncio.Semaphore(MOST_SHOWN)
        self.planned = asyncio.Semaphore(1)  # a search for plans uses all cores
        # only one thread at a time may draw or store files
        self.drawn = asyncio.Semaphore(1)

    async def view(self, request: Request) -> Response:
        asked = await _read_body(request, LARGEST_ASKED, "the request")
        return await self._answer_in_turn(
            request, self.shown, lambda: _json(contents(self._document(asked), encode_column))
        )

    async def why(self, request: Request) -> Response:
        explain = self.explain
        assert explain
        asked = await _read_body(request, LARGEST_ASKED, "the request")

        def work() -> Response:
            return _json(story_object(explain(_fields(asked), self.folder), encode_column))

        return await self._answer_in_turn(request, self.shown, work)

    async def plans(self, request: Request) -> Response:
        from starlette.responses import Response

        plan = self.plan
        assert plan
        fields = dict(request.query_params)
        return await self._answer_in_turn(
            request, self.planned, lambda: Response(plan(fields), media_type="text/html")
        )

    async def export(self, request: Request) -> Response:
        from starlette.responses import Response

        asked, suffix = (
            await _read_body(request, LARGEST_ASKED, "the request"),
            request.query_params.get("form", ""),
        )

        def work() -> Response:
            form = formats().get(suffix)
            if form is None:
                return _refusal(
                    422, f"there is no format '{suffix[:20]}'", " ".join(sorted(formats()))
                )
            out = BytesIO()
            form.write(self._document(asked), out, suffix)
            named = {"Content-Disposition": f'attachment; filename="ppsim{suffix}"'}
            return Response(out.getvalue(), media_type="application/octet-stream", headers=named)

        return await self._answer_in_turn(request, self.drawn, work)

    async def drop(self, request: Request) -> Response:
        name = request.query_params.get("name", "")
        if not _NAME.fullmatch(name):
            return _refusal(
                422, "a file's name has letters, digits, dots, dashes and underscores", "rename it"
            )
        content = await _read_body(request, LARGEST_DROP, f"'{name}'")
        replaces = request.query_params.get("replaces") == "true"
        return await self._answer_in_turn(
            request, self.drawn, lambda: self._store(name, content, replaces=replaces)
        )

    async def changed(self, request: Request) -> Response:
        since = request.query_params.get("since", "")

        def work() -> Response:
            name, count = self.changes() if self.changes else ("", 0)
            shape = self._shape_of(name) if str(count) != since and name else {}
            return _json({"changes": count, "shape": shape})

        return await self._answer_in_turn(request, self.drawn, work)

    async def _answer_in_turn(
        self, request: Request, turn: asyncio.Semaphore, work: Callable[[], Response]
    ) -> Response:
        from starlette.responses import Response

        if self.places.locked():
            return _refusal(503, "the server is busy with other requests", "try again")
        try:
            async with self.places:
                while not (gone := await request.is_disconnected()) and turn.locked():
                    await asyncio.sleep(POLL_S)
                if gone:  # a client that left while waiting takes no turn
                    return Response()
                async with turn:
                    return await _run_while_connected(work, request)
        except TimeOver:  # the client has left
            return Response()
        except PpsimError as error:
            return _refusal(422, str(error).replace(f"{self.folder}{os.sep}", ""), error.hint)
        except Exception:  # the server logs nothing, so the page has to show the error
            return _refusal(
                500,
                "internal error (a fault of ppsim)",
                "ppsim compare --debug in a terminal shows it",
            )

    def _document(self, asked: bytearray) -> Document:
        return self.show(_fields(asked), self.folder)

    def _store(self, name: str, content: bytearray, *, replaces: bool) -> Response:
        """Store a dropped file; where it cannot be shown, the file of its name stays as it was.

        A file of another page, which has the name already, keeps it unless the drop ``replaces``
        it; then the new file gets another name, which the answer has.
        """
        name = name if replaces else self._free_name(name, content)
        path = self.folder / name
        before = path.read_bytes() if path.exists() else None
        if before is None and len(list(self.folder.iterdir())) >= MOST_DROPS:
            return _refusal(
                422, f"{MOST_DROPS} files were dropped already", "start ppsim serve again"
            )
        try:
            path.write_bytes(content)
            shape = self._shape_of(name)
        except BaseException:
            if before is None:
                path.unlink(missing_ok=True)
            else:
                path.write_bytes(before)
            raise
        return _json({"name": name, **shape})

    def _free_name(self, name: str, content: bytearray) -> str:
        """Return a name, with a number if it is of a file with other content."""
        stem, dot, suffix = name.partition(".")
        found, number = name, 1
        while (path := self.folder / found).exists() and path.read_bytes() != content:
            number += 1
            found = f"{stem[:LONGEST_STEM]}-{number}{dot}{suffix}"
        return found

    def _shape_of(self, name: str) -> dict[str, int]:
        """Return the devices and microbatches of a dropped file; empty for a building block."""
        if name.endswith(".toml"):
            return {}
        schedule = self.show({"names": [f"{DROPPED}{name}"]}, self.folder).timelines[0].schedule
        return {"devices": schedule.n_devices, "mb": schedule.n_microbatches}


def _json(value: Mapping[str, Any], status: int = 200) -> Response:
    from starlette.responses import Response

    return Response(dump_json(value), status_code=status, media_type="application/json")


def _refusal(status: int, message: str, hint: str) -> Response:
    return _json({"error": message, "hint": hint}, status)


class _Refused(Exception):
    """Raised for a refused request; its arguments are the response's status, message and hint."""


async def _read_body(request: Request, most: int, name: str) -> bytearray:
    """Read the body of a request.

    Raises:
        _Refused: the body is larger than ``most`` bytes, or the client left.
    """
    from starlette.requests import ClientDisconnect

    content = bytearray()
    try:
        async for chunk in request.stream():
            content += chunk
            if len(content) > most:
                raise _Refused(
                    413,
                    f"{name} is larger than {most >> 10:,} KiB",
                    "ppsim run in a terminal accepts more",
                )
    except ClientDisconnect:
        raise _Refused(400, f"{name} is incomplete", "send it again") from None
    return content


def _fields(content: bytearray) -> dict[str, Any]:
    """Return the fields of a request's body (InputError: not a JSON object)."""
    try:
        found = decode_object(bytes(content))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise InputError(
            "the request is not a JSON object", '{"names": ["1f1b"], "devices": 4, "mb": 8}'
        )
    return found


async def _run_while_connected(work: Callable[[], Response], request: Request) -> Response:
    """Run work in a thread; cancel it at its next check of the time once the client has left."""
    disconnected = threading.Event()
    done = _run_in_thread(work, disconnected)
    while not (await asyncio.wait({done}, timeout=LOOK_S))[0]:
        if await request.is_disconnected():
            disconnected.set()
    return done.result()


def _run_in_thread(
    work: Callable[[], Response], disconnected: threading.Event
) -> asyncio.Future[Response]:
    """Run work in a daemon thread, which does not delay the program's exit as a pool would."""
    done: Future[Response] = Future()
    done.set_running_or_notify_cancel()

    def run() -> None:
        try:
            with end_when(disconnected.is_set), read_at_most(LARGEST_READ):
                done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return asyncio.wrap_future(done)


class _Guard:
    """Middleware that refuses requests from other sites and to other host names.

    It adds ``HEADERS`` to every response.
    """

    def __init__(self, app: Any, hosts: frozenset[str], any_address: bool) -> None:
        self.app, self.hosts, self.any_address = app, hosts, any_address

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return None
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        origin, host = headers.get(b"origin"), headers.get(b"host", "")
        foreign = (
            not (host in self.hosts or (self.any_address and _is_numeric(host)))
            or (origin is not None and origin != f"http://{host}")
            or headers.get(b"sec-fetch-site", "none") not in ("same-origin", "none")
        )

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_RAW_HEADERS]
            await send(message)

        if foreign:
            answer = _refusal(
                403,
                "asked under another name, or from another site",
                "the address that ppsim serve prints",
            )
            return await answer(scope, receive, send_with_headers)
        return await self.app(scope, receive, send_with_headers)


def _is_numeric(host: str) -> bool:
    """Return whether a host is a numeric address, with or without a port."""
    import ipaddress

    try:
        ipaddress.ip_address(re.sub(r":\d+$", "", host).strip("[]"))
    except ValueError:
        return False
    return True


_RAW_HEADERS = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
