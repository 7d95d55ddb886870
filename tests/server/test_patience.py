"""A connection whose request does not come whole is closed; one that is answered is not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ppsim.server import patience

ASKED = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
POSTED = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc"


async def send_and_read(*parts: bytes) -> tuple[bytes, list[bool]]:
    """Send to a server of its own: what comes back until the end, and which answers began while it counted seconds."""
    import uvicorn
    from uvicorn.server import ServerState

    state, counting = ServerState(), list[bool]()
    connections: set[Any] = state.connections

    async def app(scope, receive, send):
        while (message := await receive()).get("more_body"):
            pass
        if message["type"] == "http.disconnect":
            return
        counting.extend(not each.patience.cancelled() for each in connections)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"connection", b"close")]})
        await send({"type": "http.response.body", "body": b"ok"})

    config = uvicorn.Config(app, log_level="critical", lifespan="off")
    config.load()
    loop = asyncio.get_running_loop()
    protocol: Any = patience.make_protocol()
    made = {"config": config, "server_state": state, "app_state": {}}
    async with await loop.create_server(lambda: protocol(**made), "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        for part in parts:
            writer.write(part)
            await asyncio.sleep(0.01)
        read = await asyncio.wait_for(reader.read(), 20)
        writer.close()
    return read, counting


@pytest.mark.parametrize("sent", [b"", ASKED[:9], POSTED])
def test_a_request_that_does_not_come_whole_is_closed(sent, monkeypatch):
    monkeypatch.setattr(patience, "SECONDS", 0.05)
    assert asyncio.run(send_and_read(sent)) == (b"", [])


def test_a_whole_request_is_answered_however_long_that_takes():
    read, counting = asyncio.run(send_and_read(ASKED[:9], ASKED[9:]))
    assert (read[:15], b"ok" in read, counting) == (b"HTTP/1.1 200 OK", True, [False])
