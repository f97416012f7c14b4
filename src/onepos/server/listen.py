"""Listening on a port until the process is to end."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import uvicorn

# Seconds that open requests may take when the server ends, and that an idle connection stays open.
_GRACE, _IDLE = 3, 20


def listen(app: Any, host: str, port: int, on_ready: Callable[[str], None]) -> None:
    """Serve until Ctrl-C; `on_ready` takes the address once the port is open."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    opened = socket.socket(family)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        opened.bind((host, port))
    except OSError as error:
        opened.close()
        raise ValueError(
            f"the server must be able to listen on {host}, port {port}; it can not ({error.strerror}). Name another "
            "with --port, or 0 for a free one."
        ) from error
    opened.listen(256)
    settings = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_GRACE,
        timeout_keep_alive=_IDLE,
        limit_concurrency=500,
        h11_max_incomplete_event_size=32 * 1024,
        ws="none",
    )
    name = f"[{host}]" if family == socket.AF_INET6 else host
    on_ready(f"http://{name}:{opened.getsockname()[1]}/")
    try:
        uvicorn.Server(settings).run(sockets=[opened])
    except KeyboardInterrupt:
        pass  # uvicorn raises it again after it has ended in order
    finally:
        opened.close()
