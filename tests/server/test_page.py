"""The page in Chromium, by keyboard: nothing is lost, nothing doubled, nothing leaves the machine."""

import csv
import io
import shutil
import signal
import sqlite3
from urllib.parse import urlsplit

import httpx
import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
AWAY = "Failed to load resource: net::ERR_"  # what Chromium writes while a server is down

# All that can be operated without a name, repeated ids, and texts whose contrast is below that of WCAG 2.2 AA.
AUDIT = """() => {
    const found = [];
    const seen = { checkOpacity: true, checkVisibilityCSS: true };
    const isShown = (e) => e.checkVisibility(seen) && e.getClientRects().length;
    const name = (e) => (e.getAttribute("aria-label") || [...(e.labels || [])].map((l) => l.textContent).join(" ")
        || e.textContent || e.getAttribute("title") || "").trim();
    const named = "button, a, input, textarea, select, [role=group], [role=region], dialog[open]";
    for (const e of document.querySelectorAll(named)) {
        if (isShown(e) && !name(e) && !e.getAttribute("aria-labelledby")) found.push(`no name: ${e.outerHTML}`);
    }
    const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
    for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) found.push(`twice: #${id}`);
    for (const e of document.querySelectorAll("[aria-labelledby]")) {
        if (!document.getElementById(e.getAttribute("aria-labelledby"))) found.push(`points nowhere: ${e.tagName}`);
    }
    for (const e of document.querySelectorAll("img")) if (!e.hasAttribute("alt")) found.push("an image without alt");
    for (const e of document.querySelectorAll("button, .button, input:not(.sr)")) {
        if (!isShown(e) || e.type === "checkbox") continue;
        const box = e.getBoundingClientRect();
        if (Math.min(box.width, box.height) < 24) found.push(`small target: ${name(e)}`);
    }
    const parse = (c) => {
        const made = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
        made.fillStyle = c;
        made.fillRect(0, 0, 1, 1);
        const [r, g, b, a] = made.getImageData(0, 0, 1, 1).data;
        return [r, g, b, a / 255];
    };
    const over = (top, low) => top.slice(0, 3).map((v, k) => v * top[3] + low[k] * (1 - top[3])).concat(1);
    const ground = (e) => {
        const layers = [];
        for (let at = e; at; at = at.parentElement) layers.push(parse(getComputedStyle(at).backgroundColor));
        return layers.reverse().reduce((low, top) => over(top, low), [255, 255, 255, 1]);
    };
    const light = (c) => {
        const [r, g, b] = c.map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const e = walker.currentNode.parentElement;
        if (!walker.currentNode.textContent.trim() || !isShown(e) || e.closest("svg, .sr, .jump, :disabled")) continue;
        const low = ground(e);
        let top = parse(getComputedStyle(e).color);
        for (let at = e; at; at = at.parentElement) top[3] *= Number(getComputedStyle(at).opacity);
        const [a, b] = [light(over(top, low)), light(low)].sort((x, y) => y - x);
        const size = parseFloat(getComputedStyle(e).fontSize);
        const isLarge = size >= 24 || (size >= 18.66 && Number(getComputedStyle(e).fontWeight) >= 700);
        const contrast = (a + 0.05) / (b + 0.05);
        if (contrast < (isLarge ? 3 : 4.5)) {
            found.push(`contrast ${contrast.toFixed(2)}: ${walker.currentNode.textContent.trim().slice(0, 40)}`);
        }
    }
    return [...new Set(found)];
}"""


@pytest.fixture(scope="module")
def browser():
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no Chromium found; install it with: apt install chromium")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def visit(browser):
    """Opens a page as a named reviewer; at the end, it must have asked this machine only and complained of nothing."""
    pages = []

    def visit(address, name="Ada", width=1280, height=860, scheme="light"):
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        page = context.new_page()
        page.asked, page.heard = [], []
        page.on("request", lambda request: page.asked.append(request.url))
        page.on("console", lambda message: page.heard.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: page.heard.append(str(error)))
        page.goto(address)
        page.fill("#who-name", name)
        page.keyboard.press("Enter")
        page.wait_for_selector(".label.current")
        pages.append(page)
        return page

    yield visit
    for page in pages:
        hosts = {urlsplit(url).hostname for url in page.asked if urlsplit(url).scheme != "blob"}
        assert hosts == {"127.0.0.1"}
        assert [text for text in page.heard if AWAY not in text] == []
        page.context.close()


def shown(page):
    return page.locator(".item").get_attribute("aria-label").removeprefix("Item ")


def press(page, key):
    """Press a key that leads to the next item, and wait for it."""
    before = page.locator(".desk").element_handle()
    page.keyboard.press(key)
    page.wait_for_function("before => !before.isConnected", arg=before)
    page.wait_for_selector(".label.current, .end-card")


def settle(page):
    page.wait_for_function("() => document.body.dataset.saving === 'no'")


def stored(path):
    """(item, label) → value, as the file has it; and how often each item was finished."""
    with sqlite3.connect(path) as connection:
        lines = connection.execute(
            "SELECT item, label, value FROM actions JOIN answers ON action = number WHERE undone IS NULL"
        ).fetchall()
        done = connection.execute("SELECT item FROM actions WHERE undone IS NULL AND outcome = 'done'").fetchall()
    connection.close()
    return lines, [item for (item,) in done]


def test_twenty_items_by_keyboard_with_an_undo_and_a_kill(serve, visit, tmp_path):
    process, address = serve()
    page = visit(address)
    given = {}

    def review(keys):
        item = shown(page)
        for key in keys:
            label = page.locator(".label.current").get_attribute("aria-label")
            page.keyboard.press(key)
            given[item, label] = {"y": "yes", "n": "no", "u": "unsure", "s": "skip"}[key]
        return item

    items = []
    for k in range(10):
        items.append(review("yn" if k % 2 else "nu"))
        press(page, "Enter")
    # Undo: first the finishing of the last item, then its last answer, which is given anew.
    press(page, "z")
    assert shown(page) == items[-1]
    press(page, "z")
    redone = page.locator(".label.current").get_attribute("aria-label")
    assert given.pop((items[-1], redone)) == "no"
    page.keyboard.press("y")
    given[items[-1], redone] = "yes"
    press(page, "Enter")
    # The server is killed between an answer and its acknowledgement, at the latest: the page keeps the answer.
    items.append(review("y"))
    settle(page)
    process.send_signal(signal.SIGKILL)
    process.wait()
    review("n")
    page.get_by_text("Not saved yet").wait_for()
    lines, done = stored(tmp_path / "served.db")
    assert len(done) == 10  # all that was acknowledged is in the file
    serve(port=urlsplit(address).port)
    settle(page)
    page.locator("#alert").wait_for(state="hidden")
    assert shown(page) == items[-1]
    press(page, "Enter")
    for _ in range(8):
        items.append(review("sy"))
        press(page, "Enter")
    items.append(review("y"))
    press(page, "a")
    settle(page)
    lines, done = stored(tmp_path / "served.db")
    assert done == items
    assert len(set(items)) == 20
    by_hand = [(item, label, value) for item, label, value in lines if (item, label) in given]
    assert {(item, label): value for item, label, value in by_hand} == given
    assert len(by_hand) == len(given)  # each once
    assert {(item, value) for item, label, value in lines if (item, label) not in given} == {(items[-1], "no")}
    page.reload()
    page.wait_for_selector(".label.current")
    assert "20 of 60 done, 20 by you" in page.locator("#counts").inner_text()


def test_two_reviewers_at_once_share_the_items(serve, visit, tmp_path):
    _, address = serve(n=12)
    pages = [visit(address, name) for name in ("Ada", "Bo")]
    seen = {0: [], 1: []}
    for _ in range(6):
        assert shown(pages[0]) != shown(pages[1])
        for k, page in enumerate(pages):
            seen[k].append(shown(page))
            page.keyboard.press("y")
        for page in pages:
            press(page, "Enter")
    for page in pages:
        page.get_by_text("Nothing is left to review").wait_for()
    lines, done = stored(tmp_path / "served.db")
    assert sorted(done) == sorted(seen[0] + seen[1]) == [f"row-{k:03d}" for k in range(12)]
    assert len(lines) == 12


def test_improve_export_and_import(serve, visit, tmp_path):
    _, address = serve(seconds=2.0)
    page = visit(address)
    for _ in range(6):
        press(page, "a")
    page.click("nav a[data-view=overview]")
    page.get_by_role("button", name="Improve").click()
    page.get_by_text("judging the rows").wait_for()
    page.click("nav a[data-view=review]")  # the review goes on meanwhile
    page.keyboard.press("y")
    press(page, "Enter")
    page.click("nav a[data-view=overview]")
    page.get_by_text("What the last improvement changed").wait_for(timeout=20_000)
    assert "1 answer since" in page.locator("section[aria-labelledby=improve-title]").inner_text()
    assert page.locator("svg.interval").count() == 9
    assert page.locator("svg.calibration-chart circle").count() > 0
    with page.expect_download() as download:
        page.get_by_role("link", name="Export CSV").click()
    text = download.value.path().read_text()
    lines = list(csv.DictReader(io.StringIO(text)))
    assert len(lines) == 6 * 8 + 1
    (tmp_path / "more.csv").write_text("item,label,value\nrow-059,ball,no\n")
    page.set_input_files("#import-file", tmp_path / "more.csv")
    page.get_by_text("1 answer imported, 0 were there already.").wait_for()
    (tmp_path / "wrong.csv").write_text("item,label,value\nrow-959,ball,no\n")
    page.set_input_files("#import-file", tmp_path / "wrong.csv")
    page.get_by_text("Nothing was imported").wait_for()
    assert httpx.get(f"{address}api/export").text.count("\n") == 6 * 8 + 1 + 1 + 1
    page.heard = [text for text in page.heard if "422" not in text]  # of the refused file


def test_search_hidden_scores_and_help_by_keyboard(serve, visit):
    _, address = serve()
    page = visit(address)
    page.keyboard.press("?")
    assert page.locator("#help-dialog").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator("#help-dialog").is_visible()
    page.keyboard.press("h")
    assert not page.locator(".score").first.is_visible()
    page.keyboard.press("h")
    assert page.locator(".score").first.is_visible()
    wanted = page.locator("#others .label").last.get_attribute("aria-label")
    page.keyboard.press("/")
    page.keyboard.type(wanted)
    page.keyboard.press("Enter")
    page.keyboard.press("n")
    settle(page)
    row = page.locator(f"#doubtful .label[aria-label={wanted}]")
    assert row.get_attribute("data-answer") == "no"
    page.keyboard.press("1")
    assert page.locator(".label.current").evaluate("e => [...document.querySelectorAll('.label')].indexOf(e)") == 0
    page.keyboard.press("ArrowDown")
    assert page.locator(".label.current").evaluate("e => e === document.activeElement")
    page.keyboard.press("Tab")  # from the label to its buttons
    assert page.evaluate("document.activeElement.getAttribute('data-value')") == "yes"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_narrow_screens_and_accessibility(serve, visit, scheme):
    _, address = serve(n=20)
    page = visit(address, "A rather long name of a person", width=390, height=844, scheme=scheme)
    assert page.evaluate(AUDIT) == []
    page.locator(".value.yes").first.click()
    page.get_by_role("button", name="All others absent").click()
    settle(page)
    for view in ("review", "overview", "try"):
        page.click(f"nav a[data-view={view}]")
        page.wait_for_selector(f"#{view} h1" if view != "try" else "#try", state="attached")
        for width in (390, 1280):
            page.set_viewport_size({"width": width, "height": 844})
            page.wait_for_timeout(50)
            assert page.evaluate(OVERFLOW) <= 0, (view, width)
            assert page.evaluate(AUDIT) == [], (view, width)
    assert page.evaluate("document.documentElement.lang") == "en"
    assert page.title() == "Try one · onepos"
    page.heard = [text for text in page.heard if "409" not in text]  # there is no model here to try
