"""The routes of the review page and its JSON API."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import parse_qs

from fastapi import FastAPI, Query, Request, Response
from fastapi import Path as PathParameter
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, RedirectResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from onepos import __version__
from onepos.reading import shorten
from onepos.server.guard import COOKIE, Guard, Limits
from onepos.server.review import COLUMNS, Conflict, Given, Missing, Review
from onepos.server.store import StoreError
from onepos.server.trial import Trial

STATIC = Path(__file__).parent / "static"

Id = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{8,64}$")]
Name = Annotated[str, Field(min_length=1, max_length=80, pattern=r"^[^\x00-\x1f]*[^\s\x00-\x1f][^\x00-\x1f]*$")]
Text = Annotated[str, Field(max_length=2000)]
Row = Annotated[int, PathParameter(ge=0, le=2**31)]
Cell = str | int | float | bool | None


class Body(BaseModel):
    """A JSON body; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")


class Who(Body):
    """The browser tab and the person."""

    session: Id
    reviewer: Name


class OneAnswer(Body):
    """An answer about one label."""

    label: Text
    value: Literal["yes", "no", "unsure", "skip"]


class Answers(Who):
    """Answers about one item, stored as a whole. A known `id` changes nothing, so a request can be repeated."""

    id: Id
    item: Text
    answers: Annotated[list[OneAnswer], Field(max_length=2000)] = []
    outcome: Literal["open", "done", "skipped"] = "open"
    others_absent: bool = False


class TryRow(Body):
    """A row: name → value, or the values in the order of the features."""

    row: Annotated[dict[Text, Cell], Field(max_length=20_000)] | Annotated[list[Cell], Field(max_length=20_000)]


class Fault(BaseModel):
    """What is wrong, in one sentence."""

    detail: str


_UNSPECIFIC = ("Not Found", "Method Not Allowed", "There was an error parsing the body")
_FAULTS: dict[int | str, dict[str, Any]] = {
    code: {"model": Fault, "description": text}
    for code, text in (
        (400, "The body can not be read."),
        (401, "A token is needed."),
        (403, "The request comes from another site, or a file lies outside the data."),
        (404, "There is no such item or answer."),
        (409, "The request does not go with what is there."),
        (413, "The body is too large."),
        (421, "The Host header names another server."),
        (422, "A field is wrong."),
        (429, "Too many requests."),
    )
}


def create_app(
    review: Review,
    trial: Trial | None = None,
    *,
    host: str = "127.0.0.1",
    token: str | None = None,
    names: tuple[str, ...] = (),
    limits: Limits | None = None,
    on_improved: Callable[[str], Trial] | None = None,
) -> Guard:
    """The app behind its guard.

    Args:
        review: The data set under review.
        trial: The model for single rows; None where there is none.
        host: The address it will be served on.
        token: What clients must know; None on a loopback address only.
        names: Names under which the server is reached, beside its addresses.
        limits: How much one client may send.
        on_improved: Takes the folder of a model that learned from the answers; gives the trial that uses it.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await run_in_threadpool(review.close)

    app = FastAPI(
        title="onepos review",
        version=__version__,
        description="Review the doubtful items of a data set. Every error is one sentence in `detail`.",
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
        responses=_FAULTS,
        lifespan=lifespan,
    )
    _handle_errors(app)
    _add_review(app, review)
    _add_overview(app, review)
    _add_files(app, review)
    _add_trial(app, review, _Current(review, trial, on_improved))
    _add_pages(app, has_login=token is not None)
    return Guard(app, host=host, token=token, names=names, limits=limits)


class _Current:
    """The model for trials: that of the folder, or the one an improvement wrote last."""

    def __init__(self, review: Review, trial: Trial | None, load: Callable[[str], Trial] | None) -> None:
        self._review, self._trial, self._load, self._folder = review, trial, load, ""

    def get(self) -> Trial:
        result = self._review.improver.progress.result
        folder = None if result is None else result.get("model")
        if folder and folder != self._folder and self._load is not None:
            self._trial, self._folder = self._load(folder), folder
        if self._trial is None:
            raise Conflict("there is no model to try.")
        return self._trial


def _handle_errors(app: FastAPI) -> None:
    """Every error becomes a status and one sentence."""
    statuses: tuple[tuple[type[Exception], int], ...] = (
        (Missing, 404),
        (Conflict, 409),
        (ValueError, 422),
        (PermissionError, 403),
        (FileNotFoundError, 404),
        (StoreError, 507),
    )

    def make(status: int) -> Callable[[Request, Exception], JSONResponse]:
        return lambda _, error: JSONResponse({"detail": _one_sentence(error)}, status)

    for kind, status in statuses:
        app.add_exception_handler(kind, make(status))

    @app.exception_handler(UnicodeError)
    async def refuse_text(_: Request, error: UnicodeError) -> JSONResponse:
        return JSONResponse({"detail": "text must be valid Unicode; this request holds some that is not."}, 422)

    @app.exception_handler(RequestValidationError)
    async def explain(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        if first["type"] == "json_invalid":
            return JSONResponse({"detail": "the body must be JSON; it can not be read."}, 422)
        where = ".".join(str(part) for part in first["loc"] if part not in ("body", "query", "path"))
        message = str(first["msg"]).removeprefix("Value error, ")
        return JSONResponse({"detail": f"{where[:80] or 'the body'}: {message[:1].lower()}{message[1:300]}."}, 422)

    @app.exception_handler(HTTPException)
    async def state(request: Request, error: HTTPException) -> JSONResponse:
        sentences = {
            400: "the body must be JSON; it can not be read.",
            404: "there is nothing at this address.",
            405: f"{request.method} is not possible at this address.",
        }
        own = "" if error.detail in _UNSPECIFIC else error.detail
        return JSONResponse(
            {"detail": own or sentences.get(error.status_code, str(error.detail))}, error.status_code, error.headers
        )

    @app.exception_handler(Exception)
    async def fail(_: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"detail": "something went wrong on the server; its terminal shows what."}, 500)


def _one_sentence(error: Exception) -> str:
    return shorten(str(error)) or type(error).__name__


def _add_review(app: FastAPI, review: Review) -> None:
    @app.post("/api/next", tags=["review"])
    def next_item(who: Who) -> dict[str, Any]:
        """The item this tab has, or the next one; it is lent to the tab. `item` is null where nothing is left."""
        return review.next(who.session, who.reviewer)

    @app.get("/api/items/{row}", tags=["review"])
    def item(row: Row) -> dict[str, Any]:
        """An item, its labels, and the answers so far."""
        return review.show(row)

    @app.get("/api/items/{row}/image", tags=["review"], response_class=Response)
    def image(row: Row) -> Response:
        """The image of an item."""
        review.show(row)
        found = review.items.image(row)
        if found is None:
            raise Missing(f"item {review.items.ids[row]!r} is no image.")
        return Response(found[0], media_type=found[1], headers={"cache-control": "private, max-age=600"})

    @app.post("/api/answers", tags=["review"])
    def answer(body: Answers) -> dict[str, Any]:
        """Store answers about an item; they are on the disk when this returns."""
        answers = tuple((each.label, each.value) for each in body.answers)
        if not answers and body.outcome == "open" and not body.others_absent:
            raise ValueError("a request must hold an answer, or an outcome other than open.")
        return review.answer(
            Given(body.id, body.item, body.reviewer, body.session, answers, body.outcome, body.others_absent)
        )

    @app.post("/api/answers/{action}/undo", tags=["review"])
    def undo(action: Annotated[str, PathParameter(pattern=r"^[A-Za-z0-9_-]{8,64}$")], who: Who) -> dict[str, Any]:
        """Take answers back, and show their item again."""
        return review.undo(action, who.session, who.reviewer)


def _add_overview(app: FastAPI, review: Review) -> None:
    @app.get("/api/state", tags=["overview"])
    def state() -> dict[str, Any]:
        """Name, labels and progress."""
        return {
            "name": review.name,
            "labels": review.classes,
            "counts": review.counts(),
            "improve": review.improver.progress.to_json(),
            "version": __version__,
        }

    @app.get("/api/overview", tags=["overview"])
    def overview() -> dict[str, Any]:
        """Priors, quality and progress."""
        return review.overview()

    @app.post("/api/improve", tags=["overview"], status_code=202)
    def improve() -> dict[str, Any]:
        """Judge the rows anew with the answers; the page goes on meanwhile."""
        if not review.improve():
            raise Conflict("the rows are being judged already; wait until that is done.")
        return review.improver.progress.to_json()

    @app.get("/api/improve", tags=["overview"])
    def progress() -> dict[str, Any]:
        """How far that is, and what changed."""
        return review.improver.progress.to_json() | {"counts": review.counts()}


def _add_files(app: FastAPI, review: Review) -> None:
    @app.get("/api/export", tags=["files"], response_class=Response)
    def export(kind: Annotated[Literal["csv", "json"], Query(alias="format")] = "csv") -> Response:
        """The answers as a long table, one line per item and label."""
        lines = review.export()
        disposition = {"content-disposition": f'attachment; filename="answers.{kind}"'}
        if kind == "json":
            return JSONResponse(lines, headers=disposition)
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, COLUMNS)
        writer.writeheader()
        writer.writerows(lines)
        return Response(text.getvalue(), media_type="text/csv; charset=utf-8", headers=disposition)

    @app.post(
        "/api/import",
        tags=["files"],
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {
                    "text/csv": {"schema": {"type": "string"}},
                    "application/json": {"schema": {}},
                },
            }
        },
    )
    async def import_answers(request: Request) -> dict[str, Any]:
        """Store answers; those that are there already are left out.

        A long table in CSV or JSON, an export of Label Studio, or labels of COCO or LVIS.
        """
        content = await request.body()
        is_json = "json" in request.headers.get("content-type", "")
        return await run_in_threadpool(review.read_back, content, is_json)


def _add_trial(app: FastAPI, review: Review, current: _Current) -> None:
    @app.get("/api/try", tags=["try"])
    def describe() -> dict[str, Any]:
        """What the model takes."""
        return current.get().describe()

    @app.get("/api/try/example/{row}", tags=["try"])
    def example(row: Row) -> dict[str, Any]:
        """A row of the data, to fill in the form."""
        if row >= len(review.items.ids):
            raise Missing(f"there is no item in row {row}; the rows are 0 to {len(review.items.ids) - 1}.")
        return {"row": current.get().example(row)}

    @app.post("/api/try", tags=["try"])
    def try_row(body: TryRow) -> dict[str, Any]:
        """Predict the labels of a row."""
        return current.get().predict_row(body.row)

    @app.post(
        "/api/try/image",
        tags=["try"],
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {"image/*": {"schema": {"type": "string", "format": "binary"}}},
            }
        },
    )
    async def try_image(request: Request) -> dict[str, Any]:
        """Predict the labels of an image, sent as the body."""
        content = await request.body()
        return await run_in_threadpool(current.get().predict_image, content)


def _add_pages(app: FastAPI, has_login: bool) -> None:
    def page(name: str) -> Callable[[], FileResponse]:
        return lambda: FileResponse(STATIC / name, headers={"cache-control": "no-cache"})

    files = {f"/static/{path.name}": path.name for path in sorted(STATIC.iterdir()) if path.suffix != ".html"}
    for address, name in ({"/": "index.html", "/overview": "index.html", "/try": "index.html"} | files).items():
        app.add_api_route(address, page(name), include_in_schema=False, response_class=FileResponse)

    @app.get("/login", include_in_schema=False)
    def form() -> FileResponse:
        return FileResponse(STATIC / "login.html")

    @app.post("/login", include_in_schema=False)
    async def log_in(request: Request) -> Response:
        fields = parse_qs((await request.body()).decode("utf-8", "replace"), max_num_fields=5)
        guard: Guard = request.scope["state"]["guard"]
        client = request.client.host if request.client else ""
        cookie = guard.log_in(fields.get("token", [""])[0], client) if has_login else ""
        if cookie is None:
            return RedirectResponse("/login?wrong", 303)
        answer = RedirectResponse("/", 303)
        if cookie:
            answer.set_cookie(COOKIE, cookie, httponly=True, samesite="strict", path="/")
        return answer
