"""How long the server waits for a request that a connection does not finish."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

SECONDS = 10.0
MOST_CONNECTIONS = 100  # at a time; more are answered with 503


def make_protocol() -> type[asyncio.Protocol]:
    """Make uvicorn's protocol close a connection that has sent nothing for so long where its request is not complete.

    uvicorn itself closes those alone that are idle after an answer.
    """
    import h11
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Patient(H11Protocol):
        patience: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.start_waiting()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.start_waiting()

        def connection_lost(self, exc: Exception | None) -> None:
            self.stop_waiting()
            super().connection_lost(exc)

        def start_waiting(self) -> None:
            self.stop_waiting()
            if self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
                self.patience = self.loop.call_later(SECONDS, self.transport.close)

        def stop_waiting(self) -> None:
            if self.patience:
                self.patience.cancel()

    return Patient
