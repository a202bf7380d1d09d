"""The fake API on a port, to look at pages in a browser: ``python -m tests.dashboard.fake_server``.

Options: ``--port``, ``--dashboard-url``, ``--stale`` (spread staleness), ``--empty``,
``--database-down``. Sign in as admin with the password ``open water``.
"""

import argparse
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import httpx

from dashboard.settings import Settings
from tests.dashboard.fake_api import TOKEN, FakeApi

COOKIE = Settings.from_environment(os.environ).session_cookie
"""What a dashboard that was started from here looks for."""


class Handler(BaseHTTPRequestHandler):
    """Answers from ``api``, and with the cookie at the sign-in address."""

    api: FakeApi
    dashboard_url: str

    def answer(self) -> None:
        """One request."""
        parts = urlsplit(self.path)
        if parts.path == "/api/v1/signin":
            self._sign_in(parse_qs(parts.query).get("next", [self.dashboard_url])[0])
            return
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = dict(self.headers.items())
        request = httpx.Request(self.command, f"http://api{self.path}", headers=headers,
                                content=body)  # fmt: skip
        try:
            response = self.api.answer(request)
        except httpx.TransportError:
            self.close_connection = True  # An API that is down says nothing.
            return
        self.send_response(response.status_code)
        for name in ("Content-Type", "ETag"):
            if name in response.headers:
                self.send_header(name, response.headers[name])
        self.send_header("Content-Length", str(len(response.content)))
        self.end_headers()
        self.wfile.write(response.content)

    do_GET = do_POST = do_PATCH = do_DELETE = answer

    def _sign_in(self, target: str) -> None:
        self.api.is_signed_in = True
        self.send_response(303)
        self.send_header("Set-Cookie", f"{COOKIE}={TOKEN}; HttpOnly; SameSite=Lax; Path=/")
        self.send_header("Location", target)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def serve(api: FakeApi, port: int, dashboard_url: str) -> ThreadingHTTPServer:
    """A server for ``api``, bound and not yet serving; port 0 takes a free one."""
    handler = type("BoundHandler", (Handler,), {"api": api, "dashboard_url": dashboard_url})
    return ThreadingHTTPServer(("127.0.0.1", port), handler)


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--dashboard-url", default="http://127.0.0.1:8501")
    parser.add_argument("--stale", action="store_true")
    parser.add_argument("--empty", action="store_true")
    parser.add_argument("--database-down", action="store_true")
    options = parser.parse_args()
    api = FakeApi([] if options.empty else None, stale=options.stale)
    api.is_database_down = options.database_down
    serve(api, options.port, options.dashboard_url).serve_forever()


if __name__ == "__main__":
    main()
