"""A tiny HTTP server on its own thread: probes and metrics must answer when the event loop does not.

Used by worker and operator. Only GET and HEAD, one handler per path, each in a thread of its own; a handler must
be quick and must never ask the database, or a slow database would restart healthy pods.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from perdure.telemetry.logs import get_logger
from perdure.telemetry.prometheus import CONTENT_TYPE, Metrics

log = get_logger(__name__)

READ_SECONDS = 10.0
"""How long a client may take to send its request: scrapers need milliseconds, this only frees stuck threads."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a handler gives back."""

    status: int = HTTPStatus.OK
    body: bytes = b"ok\n"
    content_type: str = "text/plain; charset=utf-8"


Handler = Callable[[], Answer]


def probe(check: Callable[[], str | None]) -> Handler:
    """Handler of a probe: `check` gives None when all is well, else a sentence that says what is not."""

    def handle() -> Answer:
        problem = check()
        if problem is None:
            return Answer()
        return Answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{problem}\n".encode())

    return handle


def exposition(metrics: Metrics) -> Handler:
    """Handler of `/metrics`."""
    return lambda: Answer(body=metrics.exposition(), content_type=CONTENT_TYPE)


class HttpServer:
    """Serves `routes` on a port (0 = a free one, see `port`) until it is closed. Binds in the constructor."""

    def __init__(self, routes: Mapping[str, Handler], *, port: int, host: str = "") -> None:
        self._server = ThreadingHTTPServer((host, port), _handler_class(dict(routes)))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._serve, name=f"http-{self.port}", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop listening. Returns when the thread has ended."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _serve(self) -> None:
        # The interval is how late `close` may be noticed, nothing else.
        self._server.serve_forever(poll_interval=0.1)


def _handler_class(routes: dict[str, Handler]) -> type[BaseHTTPRequestHandler]:
    class Requests(BaseHTTPRequestHandler):
        timeout = READ_SECONDS
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(send_body=True)

        def do_HEAD(self) -> None:
            self._answer(send_body=False)

        def log_message(self, format: str, *args: Any) -> None:
            """Probes come every few seconds; nobody wants to read them."""

        def _answer(self, *, send_body: bool) -> None:
            handler = routes.get(self.path.partition("?")[0])
            if handler is None:
                answer = Answer(HTTPStatus.NOT_FOUND, b"not found\n")
            else:
                try:
                    answer = handler()
                except Exception:
                    log.exception("a probe or metrics handler failed", path=self.path)
                    answer = Answer(HTTPStatus.INTERNAL_SERVER_ERROR, b"internal error\n")
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            if send_body:
                self.wfile.write(answer.body)

    return Requests
