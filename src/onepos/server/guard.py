"""What stands before every route: hosts, origins, the token, sizes, rates, and headers of every answer."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import secrets
import socket
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

COOKIE = "onepos_session"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}
_LOGIN, _ICON, _STYLE = "/login", "/static/icon.svg", "/static/style.css"


@dataclass(frozen=True)
class Limits:
    """How much one client may send.

    Attributes:
        body: Bytes of a request.
        file: Bytes of an image, or of a file of answers.
        requests: Requests per second and address, in the long run.
        burst: Requests at once.
        costly: The same per second for what takes long: trying, improving, importing, exporting.
        logins: Wrong tokens per minute.
    """

    body: int = 256 * 1024
    file: int = 16 * 1024 * 1024
    requests: float = 500.0
    burst: int = 1000
    costly: float = 5.0
    logins: int = 10


@dataclass
class Bucket:
    """A supply of permissions that fills up steadily."""

    rate: float
    size: float
    left: float = -1.0
    since: float = field(default_factory=time.monotonic)

    def take(self) -> bool:
        """Use one up; False where none is left."""
        now = time.monotonic()
        self.left = self.size if self.left < 0 else min(self.size, self.left + self.rate * (now - self.since))
        self.since = now
        if self.left < 1:
            return False
        self.left -= 1
        return True


class Refusal(HTTPException):
    """A request that is answered with a status and one sentence."""


class Guard:
    """Lets requests through to an app, or refuses them.

    Args:
        app: The app behind it.
        host: The address the server listens on.
        token: What a client must know; None lets everybody in, which only a loopback address may do.
        names: Names under which the server is reached, beside its addresses.
        limits: How much one client may send.
    """

    costly = ("/api/try", "/api/improve", "/api/import", "/api/export")
    files = ("/api/try/image", "/api/import")

    def __init__(
        self, app: App, *, host: str, token: str | None, names: tuple[str, ...] = (), limits: Limits | None = None
    ) -> None:
        if token is None and not is_loopback(host):
            raise ValueError(f"a server on {host} can be reached from other machines, so it must have a token.")
        self._app, self._token, self._limits = app, token, limits or Limits()
        self._names = {"localhost", host.lower(), *map(str.lower, names)}
        if not is_loopback(host):
            self._names.add(socket.gethostname().lower())
        self._is_loopback = is_loopback(host)
        self._cookie = None if token is None else _sign(token)
        self._buckets: dict[tuple[str, str], Bucket] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request, and hand it on."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        headers = _read_headers(scope)
        sender = _Sender(send, _is_private(scope["path"]))
        try:
            self._check(scope, headers)
            most = self._limits.file if scope["path"] in self.files else self._limits.body
            reads = scope["method"] not in ("GET", "HEAD")
            received = _Receiver(receive, most, headers.get("content-length", ""), reads=reads)
            scope.setdefault("state", {})["guard"] = self
            # Files are sent whole: none is large, and parts would bring refusals that are not ours.
            scope = {**scope, "headers": [each for each in scope["headers"] if each[0].lower() != b"range"]}
            await self._app(scope, received, sender)
        except Refusal as refusal:
            if sender.has_started:
                raise
            await _refuse(refusal, scope, sender)

    def _check(self, scope: Scope, headers: dict[str, str]) -> None:
        client = (scope.get("client") or ("", 0))[0]
        path, method = scope["path"], scope["method"]
        self._check_host(headers.get("host", ""))
        if method not in ("GET", "HEAD"):
            check_origin(headers)
        if not self._bucket(client, "all", self._limits.requests, self._limits.burst).take():
            raise Refusal(429, "too many requests at once; wait a moment.")
        is_costly = method == "POST" and path.startswith(self.costly)
        if is_costly and not self._bucket(client, "costly", self._limits.costly, 4 * self._limits.costly).take():
            raise Refusal(429, "too many requests of a kind that takes long; wait a few seconds.")
        is_open = path in (_LOGIN, _ICON, _STYLE)
        if not is_open and not self.is_known(headers):
            raise Refusal(401, "a token is needed: send it as 'Authorization: Bearer …', or log in at /login.")

    def _check_host(self, host: str) -> None:
        """Refuse names that are not the server's own: another site's name may lead here too (DNS rebinding)."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
            _ = urlsplit(f"//{host}").port
        except ValueError:
            name = ""
        is_own = name in self._names or (is_loopback(name) if self._is_loopback else is_address(name))
        if not is_own:
            raise Refusal(421, "the Host header names another server; open the address that the command printed.")

    def is_known(self, headers: dict[str, str]) -> bool:
        """Whether a request shows the token, in a header or as the cookie of a login."""
        if self._token is None or self._cookie is None:
            return True
        kind, _, shown = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and equal(shown.strip(), self._token):
            return True
        return equal(_read_cookie(headers.get("cookie", "")), self._cookie)

    def log_in(self, shown: str, client: str) -> str | None:
        """The cookie for a token; None where it is wrong."""
        bucket = self._bucket(client, "login", self._limits.logins / 60, self._limits.logins)
        if not bucket.take():
            raise Refusal(429, "too many wrong tokens; wait a minute.")
        if self._token is None or not equal(shown, self._token):
            return None
        bucket.left = bucket.size
        return self._cookie

    def _bucket(self, client: str, kind: str, rate: float, size: float) -> Bucket:
        if len(self._buckets) > 10_000:
            self._buckets.clear()
        return self._buckets.setdefault((client, kind), Bucket(rate, size))


class _Receiver:
    """Counts the bytes of a request and stops where there are too many; of a request to read, the body is dropped.

    Nothing reads that body but the listening for the end of the connection, beside an answer that has begun.
    """

    def __init__(self, receive: Receive, most: int, stated: str, *, reads: bool) -> None:
        self._receive, self._most, self._seen, self._reads = receive, most, 0, reads
        if stated and (not stated.isdecimal() or int(stated[:20]) > most):
            raise self._refusal()

    async def __call__(self) -> MutableMapping[str, Any]:
        message = await self._receive()
        if not self._reads:
            return {**message, "body": b""} if "body" in message else message
        self._seen += len(message.get("body", b""))
        if self._seen > self._most:
            raise self._refusal()
        return message

    def _refusal(self) -> Refusal:
        return Refusal(413, f"a request may hold at most {self._most} bytes here; this one is larger.")


class _Sender:
    """Puts the headers of the guard on an answer."""

    def __init__(self, send: Send, is_private: bool) -> None:
        self._send, self._is_private, self.has_started = send, is_private, False

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.has_started = True
            headers = list(message.get("headers", []))
            headers += [(name.encode(), value.encode()) for name, value in HEADERS.items()]
            names = {name.lower() for name, _ in headers}
            if b"cache-control" not in names:
                headers.append((b"cache-control", b"no-store" if self._is_private else b"no-cache"))
            message = {**message, "headers": headers}
        await self._send(message)


async def _refuse(refusal: Refusal, scope: Scope, send: _Sender) -> None:
    """Answer with one sentence; a browser without a token is led to the login form."""
    is_page = refusal.status_code == 401 and scope["method"] == "GET" and not scope["path"].startswith("/api")
    headers = [(b"content-type", b"application/json")]
    if is_page and scope["path"] in ("/", "/overview", "/try"):
        headers.append((b"location", _LOGIN.encode()))
        await send({"type": "http.response.start", "status": 303, "headers": headers})
        await send({"type": "http.response.body", "body": b""})
        return
    if refusal.status_code == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if refusal.status_code == 413:
        headers.append((b"connection", b"close"))  # the rest of the body is not read
    body = json.dumps({"detail": refusal.detail}).encode()
    headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": refusal.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def check_origin(headers: dict[str, str]) -> None:
    """Refuse a request that changes something and comes from a page of another site."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site", "same-origin")
    if origin is not None and _site_of(origin) != headers.get("host", "").lower():
        raise Refusal(403, "the request comes from a page of another site, so it is refused.")
    if site not in ("same-origin", "none"):
        raise Refusal(403, "the request comes from a page of another site, so it is refused.")


def _site_of(origin: str) -> str:
    """Host and port of an origin; empty where it is no address."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def equal(shown: str, wanted: str) -> bool:
    """Compare in a time that does not depend on where two texts differ."""
    return hmac.compare_digest(hashlib.sha256(shown.encode()).digest(), hashlib.sha256(wanted.encode()).digest())


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine only."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_address(host: str) -> bool:
    """Whether this is an IP address, which no other site can give itself as a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def make_token() -> str:
    """A new token."""
    return secrets.token_urlsafe(24)


def _sign(token: str) -> str:
    return hmac.new(token.encode(), b"onepos cookie", hashlib.sha256).hexdigest()


def _is_private(path: str) -> bool:
    return path.startswith("/api") or not path.startswith("/static")


def _read_headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}


def _read_cookie(header: str) -> str:
    """The value of the login's cookie; empty where there is none."""
    for part in header.split(";"):
        name, _, value = part.strip().partition("=")
        if name == COOKIE:
            return value
    return ""
