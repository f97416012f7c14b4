"""The API: what it refuses, and that every refusal is one sentence."""

import io
import json
import time

import numpy as np
import pytest
from starlette.testclient import TestClient

from onepos.report.items import FeatureItems, ImageItems
from onepos.server.app import create_app
from onepos.server.guard import Limits, make_token

WHO = {"session": "session-1", "reviewer": "Ada"}
TOKEN = "a-token-of-enough-letters"


def answer(name="action-01", item="row-001", **more):
    return WHO | {"id": name, "item": item, "answers": [{"label": "cat", "value": "yes"}]} | more


def check_refused(response, status):
    assert response.status_code == status, response.text
    content = response.json()
    assert set(content) == {"detail"}
    assert content["detail"].endswith((".", "?"))
    assert "\n" not in content["detail"]
    assert "Traceback" not in content["detail"]
    return content["detail"]


def test_answers_are_stored_once_whatever_is_repeated(client, review):
    first, second = client.post("/api/answers", json=answer()), client.post("/api/answers", json=answer())
    assert [reply.json()["saved"] for reply in (first, second)] == [True, True]
    assert [reply.json()["repeated"] for reply in (first, second)] == [False, True]
    assert len(review.export()) == 1


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/api/answers", answer(item="nothing"), 404),
        ("/api/answers", answer(answers=[{"label": "cow", "value": "yes"}]), 422),
        ("/api/answers", answer(answers=[{"label": "cat", "value": "perhaps"}]), 422),
        ("/api/answers", answer(answers=[{"label": "cat", "value": "yes"}, {"label": "cat", "value": "no"}]), 422),
        ("/api/answers", answer(answers=[]), 422),
        ("/api/answers", answer(reviewer="  "), 422),
        ("/api/answers", answer(name="short"), 422),
        ("/api/answers", answer(name="no spaces allowed"), 422),
        ("/api/answers", answer(extra=1), 422),
        ("/api/answers", [], 422),
        ("/api/answers/nothing-01/undo", WHO, 404),
        ("/api/next", {"session": "session-1"}, 422),
        ("/api/improve", None, 409),
        ("/api/try", {"row": {}}, 409),
        ("/api/nothing", {}, 404),
        ("/api/state", {}, 405),
    ],
)
def test_wrong_requests_are_refused_in_one_sentence(client, review, path, body, status):
    check_refused(client.post(path, json=body), status)
    assert review.export() == []


def test_malformed_json_is_refused(client):
    for content in (
        b"{",
        b"\xff\xfe",
        b"",
        b"nul",
        b'{"session": "\\ud800aaaaaaaaa", "reviewer": "\\ud800"}',
        b"[" * 5000,
    ):
        for path in ("/api/next", "/api/answers", "/api/try"):
            response = client.post(path, content=content, headers={"content-type": "application/json"})
            assert 400 <= response.status_code < 500, (content, response.text)
            check_refused(response, response.status_code)


@pytest.mark.parametrize("row", ["60", "-1", "999999999999999999999", "x", "1.5"])
def test_unknown_items(client, row):
    for path in (f"/api/items/{row}", f"/api/items/{row}/image", f"/api/try/example/{row}"):
        response = client.get(path)
        check_refused(response, 404 if row in ("60",) else 422)


@pytest.mark.parametrize(
    "path",
    ["/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/%2e%2e/%2e%2e/etc/passwd",
     "/api/items/..%2f..%2fx/image",
     "/static//etc/passwd", "/static/index.html", "/static/"],
)  # fmt: skip
def test_no_file_but_those_of_the_page(client, path):
    response = client.get(path)
    assert response.status_code in (404, 422)
    assert "import" not in response.text


def test_large_bodies_are_refused(client):
    large = b"x" * (300 * 1024)
    check_refused(client.post("/api/answers", content=large), 413)
    stated = client.post("/api/try/image", content=b"", headers={"content-length": str(1 << 30)})
    check_refused(stated, 413)

    def stream():  # without a stated length
        for _ in range(40):
            yield large

    check_refused(client.post("/api/answers", content=stream()), 413)
    check_refused(client.post("/api/import", content=(large for _ in range(80))), 413)


def test_pages_of_other_sites_are_refused(client, review):
    for headers in (
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"origin": "http://127.0.0.1:9999"},
    ):
        check_refused(client.post("/api/answers", json=answer(), headers=headers), 403)
    own = {"origin": "http://127.0.0.1:8765", "sec-fetch-site": "same-origin"}
    assert client.post("/api/answers", json=answer(), headers=own).status_code == 200
    assert len(review.export()) == 1


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8765", "127.0.0.1.evil.example", "", "192.168.1.5", "[::1", "localhost:x"]
)
def test_other_names_are_refused(client, host):
    check_refused(client.get("/api/state", headers={"host": host}), 421)


@pytest.mark.parametrize("host", ["127.0.0.1:8765", "localhost", "localhost:80", "[::1]:8765"])
def test_own_names(client, host):
    assert client.get("/api/state", headers={"host": host}).status_code == 200


def test_every_answer_has_the_headers(client):
    for path in ("/", "/static/app.js", "/api/state", "/api/nothing"):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
    assert client.get("/api/state").headers["cache-control"] == "no-store"


def test_the_pages_hold_no_inline_script_or_style(client):
    for path in ("/", "/login"):
        html = client.get(path).text
        assert "<style" not in html
        assert " style=" not in html
        assert " on" not in html.replace(" one", "").replace(" on<", "") or "onclick" not in html
        assert "http://" not in html
        assert "https://" not in html
        assert html.count("<script") == html.count('<script type="module" src="/static/app.js">')


# With a token


@pytest.fixture
def remote(review):
    """A client of a server that is reached from other machines."""
    app = create_app(review, host="0.0.0.0", token=TOKEN, names=("review.example",))
    with TestClient(app, base_url="http://192.168.1.5:8765", follow_redirects=False) as client:
        yield client


def test_other_addresses_need_a_token(review):
    for host in ("0.0.0.0", "192.168.1.5", "::", "review.example"):
        with pytest.raises(ValueError, match="must have a token"):
            create_app(review, host=host)
    assert len(make_token()) >= 32


def test_nothing_without_the_token(remote):
    for path in ("/api/state", "/api/openapi.json", "/api/items/0", "/api/export", "/api/nothing", "/static/app.js"):
        assert "token" in check_refused(remote.get(path), 401)
    for wrong in ("", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "é"):
        check_refused(remote.get("/api/state", headers={"authorization": f"Bearer {wrong}".encode()}), 401)
        check_refused(remote.get("/api/state", headers={"cookie": f"onepos_session={wrong}".encode()}), 401)
    check_refused(remote.get("/api/state", headers={"cookie": f"onepos_session={TOKEN}"}), 401)  # the cookie is derived
    assert remote.get("/").headers["location"] == "/login"
    assert remote.get("/api/state", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200


def test_the_login_form_sets_a_cookie(remote):
    assert remote.get("/login").status_code == 200
    assert remote.get("/static/style.css").status_code == 200
    wrong = remote.post("/login", data={"token": "wrong"})
    assert wrong.headers["location"] == "/login?wrong"
    assert "set-cookie" not in wrong.headers
    right = remote.post("/login", data={"token": TOKEN})
    cookie = right.headers["set-cookie"]
    assert TOKEN not in cookie
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert remote.get("/api/state").status_code == 200


def test_wrong_tokens_are_slowed_down(remote):
    codes = [remote.post("/login", data={"token": "wrong"}).status_code for _ in range(12)]
    assert codes[:10] == [303] * 10
    assert codes[10:] == [429] * 2
    assert remote.post("/login", data={"token": TOKEN}).status_code == 429


def test_a_remote_server_knows_its_names(remote):
    bearer = {"authorization": f"Bearer {TOKEN}"}
    for host, status in (("review.example", 200), ("10.0.0.7:8765", 200), ("evil.example", 421)):
        assert remote.get("/api/state", headers=bearer | {"host": host}).status_code == status


def test_requests_are_limited(review):
    app = create_app(review, limits=Limits(requests=1, burst=5))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        codes = [client.get("/api/state").status_code for _ in range(8)]
    assert codes[:5] == [200] * 5
    assert 429 in codes


def test_an_origin_that_is_no_address_is_refused(client):
    """urlsplit raised an error that nobody caught."""
    check_refused(client.post("/api/next", json={}, headers={"origin": "http://["}), 403)


def test_text_that_is_no_unicode_is_refused(review):
    """The answer held what Python says of it."""
    import pandas as pd

    from onepos import SinglePositiveClassifier
    from onepos.server.trial import Trial

    X = pd.DataFrame({"width": np.arange(60.0), "text": ["some text", "other words"] * 30})
    model = SinglePositiveClassifier("an", epochs=1, hidden=(4,), random_state=0).fit(X, ["cat", "dog"] * 30)
    with TestClient(create_app(review, Trial(model, X)), base_url="http://127.0.0.1") as client:
        for row in ('[1, "\\ud800"]', '{"width": 1, "text": "\\ud800"}', '{"\\ud800": 1}'):
            found = client.post(
                "/api/try", content='{"row": ' + row + "}", headers={"content-type": "application/json"}
            )
            assert "codec" not in check_refused(found, 422)


def test_a_large_body_beside_a_page_is_dropped(client):
    """It ended in an error on the terminal, after the answer had begun."""
    chunks = (b"x" * 100_000 for _ in range(4))  # without its length in a header
    response = client.request("GET", "/static/style.css", content=chunks)
    assert response.status_code == 200
    assert len(response.content) > 1000


@pytest.mark.parametrize("given", ["bytes=0-5", "bytes=9-1", "words=1-2", "bytes=-"])
def test_files_are_sent_whole(client, given):
    whole = client.get("/static/style.css")
    part = client.get("/static/style.css", headers={"range": given})
    assert part.status_code == 200
    assert part.content == whole.content


def test_a_table_with_very_many_columns_is_imported(client):
    """Columns that are not known are not read: 40 000 of them took longer than ten seconds."""
    n = 40_000
    text = "item,label,value," + ",".join(f"z{k}" for k in range(n)) + "\n"
    text += "row-001,cat,1" + ",1" * n + "\n"
    began = time.monotonic()
    imported = client.post("/api/import", content=text, headers={"content-type": "text/csv"}).json()
    assert imported["imported"] == 1
    assert time.monotonic() - began < 5
    uneven = client.post("/api/import", content=text + "row-001,cat\n", headers={"content-type": "text/csv"})
    assert "line 3 holds 2 cells" in check_refused(uneven, 422)


def test_the_openapi_file_names_every_route(client):
    found = client.get("/api/openapi.json").json()
    assert {"/api/next", "/api/answers", "/api/answers/{action}/undo", "/api/improve", "/api/export"} <= set(
        found["paths"]
    )
    assert client.get("/docs").status_code == 404


def test_export_in_both_forms(client):
    client.post("/api/answers", json=answer())
    text = client.get("/api/export").text
    assert text.splitlines()[0] == "item,label,value,source,time,reviewer,reason"
    assert client.get("/api/export?format=json").json()[0]["reviewer"] == "Ada"
    check_refused(client.get("/api/export?format=xml"), 422)
    imported = client.post("/api/import", content=text, headers={"content-type": "text/csv"}).json()
    assert (imported["imported"], imported["known"]) == (0, 1)
    check_refused(client.post("/api/import", content="nothing", headers={"content-type": "text/csv"}), 422)


def test_a_full_disk_is_said(client, monkeypatch):
    import onepos.server.review as module

    def broken(connection, *_):
        connection.execute("INSERT INTO nothing VALUES (1)")

    monkeypatch.setattr(module, "add_action", broken)
    check_refused(client.post("/api/answers", json=answer()), 507)


# How rows are shown


def test_images_stay_inside_the_folder(tmp_path):
    from PIL import Image

    (tmp_path / "photos").mkdir()
    Image.new("RGB", (2000, 500), "red").save(tmp_path / "photos" / "a.jpg")
    Image.new("RGB", (20, 20), "red").save(tmp_path / "secret.png")
    (tmp_path / "photos" / "link.png").symlink_to(tmp_path / "secret.png")
    (tmp_path / "photos" / "text.png").write_text("a secret text")
    names = ["a.jpg", "link.png", "../secret.png", "text.png", "gone.png"]
    files = [str(tmp_path / "photos" / name) for name in names]
    items = ImageItems(names, files, tmp_path / "photos")
    content, kind = items.image(0)
    assert kind == "image/jpeg"
    assert max(Image.open(io.BytesIO(content)).size) == 1400
    for row in (1, 2):
        with pytest.raises(PermissionError, match="outside the folder"):
            items.image(row)
    with pytest.raises(ValueError, match="can not be read"):
        items.image(3)
    with pytest.raises(FileNotFoundError):
        items.image(4)


def test_features_are_a_small_table():
    X = np.zeros((30, 100))
    X[7, 42] = 5
    items = FeatureItems([str(k) for k in range(30)], X)
    shown = items.show(7)
    assert shown["fields"][0] == ["feature 42", "5"]
    assert len(shown["fields"]) == 12
    assert "12 of 100" in shown["note"]
    assert items.image(7) is None
    grey = FeatureItems(["0"], np.full((1, 16), 0.5), image_shape=(4, 4))
    assert grey.image(0)[1] == "image/png"
    json.dumps(shown)
