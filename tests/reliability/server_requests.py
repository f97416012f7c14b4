"""Requests to the review server, damaged: bodies, paths, methods, queries and headers, sent to the app in this process.

No socket and no client library lies between, which would refuse half of them by itself.
"""

import asyncio
import io
import json
import random
import re
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from isolation import SECONDS
from mutation import WORDS, mutate_bytes, mutate_json, mutate_text

_SERVER = Path(__file__).parent.parent / "server"
_TOKEN = "a-token-of-the-harness"
_HOST = (b"host", b"127.0.0.1:8765")
_WHO = {"session": "session-0001", "reviewer": "Ann"}
_ANSWER = {**_WHO, "id": "answer-00001", "item": "row-001", "outcome": "done", "others_absent": True}
_CHOICE = {"from_name": "label_cat", "to_name": "item", "type": "choices", "value": {"choices": ["yes"]}}
_ANNOTATION = {"completed_by": {"email": "a@b.c"}, "updated_at": "2026-01-01T00:00:00Z", "result": [_CHOICE]}
_TASKS = [{"id": 1, "data": {"item": "row-002", "reason": "random"}, "annotations": [_ANNOTATION]}]
_SHORT = [{"item": "row-004", "annotation_id": 1, "annotator": 1, "label_dog": {"choices": ["no"]}}]
_COCO = {
    "images": [{"id": 1, "file_name": "row-003", "neg_category_ids": [1]}],
    "categories": [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}],
    "annotations": [{"id": 1, "image_id": 1, "category_id": 2}],
}
_LINES = [{"item": "row-002", "label": "cat", "value": "yes", "time": "2026-01-01", "reviewer": "Bob"}]
_TABLE = "item,label,value,time,reviewer\nrow-001,cat,1,2026-01-01,Bob\nrow-005,dog,no,,\n"
_JSON, _CSV, _IMAGE, _FORM = "application/json", "text/csv", "image/png", "application/x-www-form-urlencoded"


_PAGES = (
    "/", "/overview", "/login", "/static/style.css", "/api/openapi.json", "/api/state", "/api/items/3",
    "/api/items/3/image", "/api/overview", "/api/try", "/api/try/example/3", "/api/improve",
)  # fmt: skip


def _image(kind, mode):
    from PIL import Image

    out = io.BytesIO()
    Image.new(mode, (6, 5)).save(out, kind)
    return out.getvalue()


def _seeds():
    """Method, path, query, kind of the body, body."""
    as_json = [
        ("/api/next", _WHO),
        ("/api/answers", {**_ANSWER, "answers": [{"label": "cat", "value": "yes"}]}),
        ("/api/answers/answer-00001/undo", _WHO),
        ("/api/try", {"row": {"width": 1.0, "text": "some words", "day": "2026-01-01"}}),
        ("/api/try", {"row": [1, "some words", "2026-01-01"]}),
        ("/api/try", {"row": [0.5] * 16}),
        *(("/api/import", content) for content in (_TASKS, _SHORT, _COCO, _LINES)),
    ]
    return [
        *(("POST", path, b"", _JSON, json.dumps(body).encode()) for path, body in as_json),
        ("POST", "/api/import", b"", _CSV, _TABLE.encode()),
        ("POST", "/api/try/image", b"", _IMAGE, _image("PNG", "L")),
        ("POST", "/api/try/image", b"", _IMAGE, _image("JPEG", "RGB")),
        ("POST", "/login", b"", _FORM, b"token=wrong"),
        ("POST", "/api/improve", b"", "", b""),
        *(("GET", path, b"", "", b"") for path in _PAGES),
        *(("GET", "/api/export", query, "", b"") for query in (b"format=json", b"format=csv", b"")),
    ]


_PATHS = (
    *(f"/api/items/{row}" for row in ("-1", "99999", "1e3", "²", "٣", "9" * 5000, "%00", " 3", "3\n", "3/../4", "")),
    *(f"/api/answers/{name}/undo" for name in ("x", "a" * 64, "a" * 65, "\x00", "é", "..")),
    "/static/../app.py", "/static/%2e%2e/app.py", "//evil", "/api", "/docs", "/redoc", "*", "/login/", "",
    "/api/export/", "/api/try/example/99",
)  # fmt: skip
_METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", "BREW", "", "get", "é")
_QUERIES = (b"format=xml", b"format=json&format=csv", b"format=%ff", b"format", b"a" * 9000, b"%", b"&" * 999, b"\xff")
_NAMES = (
    b"host", b"origin", b"content-length", b"content-type", b"authorization", b"cookie", b"sec-fetch-site", b"range",
    b"if-none-match", b"if-modified-since", b"accept", b"transfer-encoding", b"x-forwarded-for", b"content-encoding",
)  # fmt: skip
_HEADERS = (
    b"", b"x" * 70_000, b"\xff\xfe", b"0", b"-1", b"9" * 400, b"1e5", b"http://[", b"null", b"http://127.0.0.1:8765",
    b"127.0.0.1:99999999", b"[::1]:80", b"localhost:abc", b"a b", b"\x00", b"Bearer", b"Bearer " + _TOKEN.encode(),
    b"Basic eA==", b"onepos=x; onepos=", b"===;;;", b"same-site", b"gzip", b"chunked", b"\xb2", b"bytes=9-1",
    b"multipart/form-data; boundary=x", b"application/json; charset=utf-16", b"text/csv", b"application/json",
)  # fmt: skip
_BODIES = (
    b"", b"null", b"[]", b"\xff", b"[" * 100_000, b'{"a":' * 5000, b"x" * 300_000, b"a,b\n" * 50_000, b"9" * 6000,
    b"item,label,value" + b",z" * 20_000 + b"\n" + b"1," * 20_002 + b"1\n", b'{"row": {"width": ' + b"9" * 6000 + b"}}",
    b'{"row": {"\\ud800": 1}}', b'{"session": "session-0001", "reviewer": "\\ud800"}',
)  # fmt: skip
_FOREIGN = re.compile(
    r"Traceback|[A-Z][a-z]+Error\b|Value error|pydantic|NoneType|Errno|has no attribute|not subscript"
)


_WEIGHTS = (60, 6, 10, 5, 5, 12, 2)


def make_request(seed, case, seeds):
    """Which app (0 has no token), and a request: method, path, query, headers, body."""
    rng = random.Random(f"{seed}/server API/{case}")
    method, path, query, kind, body = rng.choice(seeds)
    headers = [_HOST, *([(b"content-type", kind.encode())] if kind else [])]
    if rng.random() < 0.5:
        headers.append((b"authorization", b"Bearer " + _TOKEN.encode()))
    for _ in range(rng.choice((1, 1, 2, 3))):
        what = rng.choices(("body", "other body", "path", "method", "query", "header", "headers"), _WEIGHTS)[0]
        if what == "body":
            body = _damage(rng, kind, body) if body else body
        elif what == "header":
            name = rng.choice(_NAMES)
            headers = [each for each in headers if each[0] != name or rng.random() < 0.3]
            headers.append((name, rng.choice(_HEADERS)))
        elif what == "headers":
            headers = rng.sample(headers, len(headers) // 2)
        else:
            body = rng.choice(_BODIES) if what == "other body" else body
            path = rng.choice(_PATHS) if what == "path" else path
            method = rng.choice(_METHODS) if what == "method" else method
            query = rng.choice(_QUERIES) if what == "query" else query
    return rng.randrange(2), (method, path, query, headers, body)


def _damage(rng, kind, body):
    try:
        if kind == _JSON and rng.random() < 0.8:
            return mutate_json(rng, body)
        if kind == _CSV and rng.random() < 0.8:
            return mutate_text(rng, body)
        if kind == _FORM:
            return b"token=" + rng.choice(WORDS)[:3000].encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):
        pass
    return mutate_bytes(rng, body)


async def send(app, request):
    """Status and body of the answer; None where none began."""
    method, path, query, headers, body = request
    status, parts, is_sent = None, [], False

    async def receive():
        nonlocal is_sent
        if is_sent:
            await asyncio.sleep(3600)
        is_sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    async def take(message):
        nonlocal status
        status = message.get("status", status)
        parts.append(message.get("body", b""))

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query,
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 5),
        "server": ("127.0.0.1", 8765),
    }
    await asyncio.wait_for(app(scope, receive, take), SECONDS)
    return status, b"".join(parts)


class Server:
    """Two apps in this process, made when first used: a table without a token, and images with one."""

    def __init__(self):
        self.loop, self.apps, self.seeds = None, [], []

    def start(self):
        sys.path.insert(0, str(_SERVER))
        from standin import make_review

        from onepos import SinglePositiveClassifier
        from onepos.server.app import create_app
        from onepos.server.guard import Limits
        from onepos.server.trial import Trial

        table = pd.DataFrame({"width": np.arange(60.0), "text": ["some text", "other words"] * 30})
        table["day"] = pd.date_range("2026-01-01", periods=60).astype(str)
        numbers = np.random.default_rng(0).random((60, 16))
        limits = Limits(requests=1e9, burst=10**9, costly=1e9, logins=10**9)
        for X, shape, token in ((table, None, None), (numbers, (4, 4), _TOKEN)):
            model = SinglePositiveClassifier("an", epochs=1, hidden=(4,), random_state=0).fit(X, ["cat", "dog"] * 30)
            review = make_review(Path(tempfile.mkdtemp(prefix="onepos-reliability-")) / "reviews.db")
            self.apps.append(create_app(review, Trial(model, X, shape), token=token, limits=limits))
        self.loop, self.seeds = asyncio.new_event_loop(), _seeds()

    def run(self, seed, case):
        """What came of a request: "result", "sentence" or "foreign", and the text."""
        if not self.apps:
            self.start()
        if case < 0:  # undamaged
            request = ("GET", "/api/state", b"", [_HOST], b"")
            return self._judge(request, *self.loop.run_until_complete(send(self.apps[0], request)))
        place, request = make_request(seed, case, self.seeds)
        try:
            answer = self.loop.run_until_complete(send(self.apps[place], request))
        except Exception as error:  # a server would print it, and answer 500
            return "foreign", f"{_in_words(request)}: {type(error).__name__}: {str(error)[:500]}"
        return self._judge(request, *answer)

    def _judge(self, request, status, body):
        found = f"{_in_words(request)}: {status} {body[:500]!r}"
        if status is None or status >= 500:
            return "foreign", found
        if status < 400:
            return "result", ""
        if request[0] == "HEAD":
            return "sentence", ""
        try:
            text = json.loads(body)["detail"]
            is_sentence = text.rstrip().endswith((".", "?", "…", ")")) and "\n" not in text and len(text) < 1500
        except (ValueError, KeyError, TypeError, AttributeError):
            is_sentence = False
        return ("sentence", text) if is_sentence and not _FOREIGN.search(text) else ("foreign", found)


def _in_words(request):
    method, path, query, headers, body = request
    return f"{method} {path[:80]!r} {query[:40]!r} {[(n, v[:40]) for n, v in headers]} {body[:200]!r}"
