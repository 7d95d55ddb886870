"""The connections of the live page: which of them give way where there are too many."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

MOST_CONNECTIONS = 128
MOST_UNREAD = 24  # answers, of megabytes each, that wait in memory until they are taken


def make_protocol() -> type[asyncio.Protocol]:
    """Make uvicorn's protocol drop the oldest connections for newer ones, but for those whose answer is being made.

    uvicorn itself turns newcomers away instead, so that requests that never end and answers that nobody takes keep all
    others out.
    """
    from uvicorn.protocols.http.h11_impl import H11Protocol

    opened: dict[Yielding, None] = {}  # oldest first

    class Yielding(H11Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            opened[self] = None
            unread = [each for each in opened if each.flow.write_paused]
            for old in (*list(opened)[:-MOST_CONNECTIONS], *unread[:-MOST_UNREAD]):
                if not old.is_served():
                    old.transport.abort()

        def connection_lost(self, exc: Exception | None) -> None:
            opened.pop(self, None)
            super().connection_lost(exc)

        def is_served(self) -> bool:
            """Whether its answer is being made, and it takes what was sent before."""
            cycle = self.cycle
            return bool(cycle) and not (cycle.more_body or cycle.response_complete or self.flow.write_paused)

    return Yielding
