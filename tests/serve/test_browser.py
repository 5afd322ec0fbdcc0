"""The pages in a real Chromium: live, safe from other sites, and for everybody.

One browser and one server are shared by all tests; the campaign starts another browser.
axe-core is installed from npm when its test first needs it, into a folder that git
ignores.
"""

import json
import os
import shutil
import subprocess
import sys
import threading
import urllib.request
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote

import pytest

import crdtmem
from tests.child import PATIENCE_S, ROOT
from tests.conftest import PROFILE

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not there")
from selenium.webdriver import ActionChains  # noqa: E402 - see above
from selenium.webdriver.chrome.service import Service  # noqa: E402 - see above
from selenium.webdriver.common.keys import Keys  # noqa: E402 - see above
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402 - see above

CHROMIUM = shutil.which("chromium")
DRIVER = shutil.which("chromedriver")
AXE = "axe-core@4.14.1"
AXE_FOLDER = ROOT / "bench" / "results" / AXE.replace("@", "-")
INSTALL_TIMEOUT_S = 50
FLAGS = ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage")
# In CI some of the pages, the campaign sees all of them in both ways.
STRIDE = {"default": 10, "campaign": 1}[PROFILE]
UNSCRIPTED_STRIDE = {"default": 5, "campaign": 1}[PROFILE]
# What a window of 1,280 pixels shows at 400 %, too.
NARROW = {"width": 320, "height": 800, "deviceScaleFactor": 1, "mobile": False}

pytestmark = [
    pytest.mark.browser,
    pytest.mark.process,
    pytest.mark.skipif(None in (CHROMIUM, DRIVER), reason="Chromium is not installed"),
]

HOSTILE = [
    "<script>document.title = 'owned'</script>",
    '"><img src=x onerror="document.title=1">',
    "</textarea></title><svg onload=alert(1)>",
    "\x1b[31mred\x1b[0m \u202egnp.exe\u202c \U000e0041\u200b",
]
PROBE = """
const [base, done] = arguments
const attempts = {
  fetch: () => fetch(`${base}/api/v1/status`, {credentials: 'include'}),
  write: () => fetch(`${base}/api/v1/projects/demo/slots/safe/append`, {
    method: 'POST', mode: 'no-cors', credentials: 'include', body: '{"text": "x"}'}),
  stream: () => new Promise((good, bad) => {
    const source = new EventSource(
      `${base}/api/v1/projects/demo/events`, {withCredentials: true})
    source.onopen = good
    source.onerror = () => { source.close(); bad() }
  }),
  socket: () => new Promise((good, bad) => {
    const socket = new WebSocket(`${base.replace('http', 'ws')}/yjs/demo/safe`)
    socket.onopen = good
    socket.onerror = bad
  }),
}
const names = Object.keys(attempts)
Promise.allSettled(names.map(name => attempts[name]())).then(results => done(
  names.filter((name, i) => results[i].status === 'fulfilled'
    && results[i].value?.type !== 'opaque')))
"""


class Browser:
    """Chromium, signed in to a server, and the store behind it."""

    def __init__(self, driver, base, memory):
        self.driver, self.base, self.memory = driver, base, memory

    def go(self, path):
        self.driver.get(self.base + path)

    def slot(self, label, *more):
        self.go("/".join(["/p/demo/slots/project", label, *more]))

    def find(self, css):
        return self.driver.find_element("css selector", css)

    def all(self, css):
        return self.driver.find_elements("css selector", css)

    def wait(self, condition):
        """Return what a condition gives, as soon as that is something."""
        return WebDriverWait(self.driver, PATIENCE_S, 0.02).until(lambda _: condition())

    def js(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    @property
    def text(self):
        return self.js("return document.body.innerText")

    def is_live(self):
        return self.js("return document.documentElement.dataset.live === 'on'")

    def submit(self, css):
        """Send a form by its button, and wait for the page that it leads to."""
        old = self.find("html")
        self.find(css).click()
        self.wait(
            lambda: (
                self.js("return document.readyState") == "complete"
                and (self.find("html") != old)
            )
        )

    def edit(self, old, new):
        """Replace text in the field of the edit page, as somebody who types."""
        area = self.find("#content")
        typed = area.get_property("value").replace(old, new)
        self.js("arguments[0].value = arguments[1]", area, typed)

    def run(self, command, **arguments):
        self.driver.execute_cdp_cmd(command, arguments)

    def complaints(self):
        """Return what the console has, such as reports of the content policy."""
        return [entry["message"] for entry in self.driver.get_log("browser")]


@contextmanager
def chromium(profile):
    """Start a browser with a profile of its own."""
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, Service(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    store = folder / "store.db"
    words = ["serve", "--store", str(store), "--project", "demo", "--port", "0"]
    with crdtmem.open(store, lane="cli", project="demo") as memory:
        server = subprocess.Popen(
            [sys.executable, "-m", "crdtmem", *words, "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(folder)},
        )
        told = server.stdout
        assert told is not None
        try:
            about = json.loads(told.readline())
            with chromium(folder / "profile") as driver:
                made = Browser(driver, about["base"], memory)
                driver.get(about["url"])
                made.wait(lambda: made.all("nav"))
                yield made
        finally:
            server.terminate()
            assert server.wait(PATIENCE_S) == 0
            told.close()


@contextmanager
def another_site(html):
    """Serve a page on another port of this host, which cookies do not tell apart."""

    class Site(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(html.encode())

        def log_message(self, *_):
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.requirement("serve-2")
def test_a_page_on_another_port_reaches_nothing_with_the_cookie(browser):
    slot = browser.memory.slot(browser.memory.create("safe", "as it was").label)
    action = f"{browser.base}/p/demo/slots/project/safe/append"
    form = (
        f'<form method="post" action="{action}"><input name="text" value="x">'
        '<input name="request_id" value="abcdefgh"><button>go</button></form>'
    )
    with another_site(form) as address:
        browser.driver.get(address)
        reached = browser.driver.execute_async_script(PROBE, browser.base)
        browser.submit("button")

    assert reached == []
    assert "origin-forbidden" in browser.text
    assert (slot.read().content, slot.read().rev) == ("as it was", 0)
    browser.complaints()


@pytest.mark.requirement("serve-6")
def test_hostile_text_is_shown_and_does_nothing(browser):
    memory = browser.memory
    with crdtmem.open(memory.path, lane=HOSTILE[1][:60], project="demo") as other:
        other.create("signed", HOSTILE[0])
    memory.create("huge", "z" * 1_000_000, size_limit=1_000_000)
    memory.create("hostile", "\n".join(HOSTILE), description=HOSTILE[1])
    memory.bind(partition_key="k").memory_set(HOSTILE[0][:9]).add(
        HOSTILE, ids=list("abcd")
    )
    browser.complaints()
    key = quote(memory.bind(partition_key="k").binding.encoded_key, safe="")
    name = quote(HOSTILE[0][:9], safe="")
    for path in (
        "/p/demo/slots/project/hostile",
        "/p/demo/slots/project/huge",
        "/p/demo/slots/project/signed",
        "/p/demo/slots/project/hostile/edit",
        "/p/demo/slots/project/hostile/history",
        "/p/demo/search?q=script",
        f"/p/demo/sets?partition={key}&set={name}",
    ):
        browser.go(path)
        assert browser.js("return document.images.length") == 0, path
        assert browser.js("return document.title").endswith("crdtmem"), path
        assert browser.js("return document.scripts.length") == 1, path
        assert browser.all("svg") == [], path
    assert browser.complaints() == []
    browser.slot("hostile")
    assert HOSTILE[0] in browser.text
    assert "\\u{202E}" in browser.text


@pytest.mark.requirement("serve-7")
@pytest.mark.parametrize(
    "text",
    ["\n\na\r\nb\rc\0\u2028\r", "a\0b\r\n\n", "\r\n<b>\r\n\t\x1b\ufeff"][::STRIDE],
)
def test_an_edit_that_is_saved_untouched_changes_nothing(browser, text):
    number = len(browser.memory.slots(content=False))
    slot = browser.memory.slot(browser.memory.create(f"exact_{number}", text).label)
    before = slot.read()
    browser.slot(slot.label, "edit")
    browser.submit("main form button")

    assert "Nothing was changed" in browser.text
    assert (slot.read().rev, slot.read().content_hash) == (
        before.rev,
        before.content_hash,
    )


@pytest.mark.requirement("serve-8")
def test_two_edits_and_fifty_appends_are_all_there_and_seen_live(browser):
    memory, driver = browser.memory, browser.driver
    slot = memory.slot(memory.create("shared", "one\ntwo\nthree").label)
    # A save merges as long as the text that it was made from is kept.
    memory.configure(history_keep=100)
    first = driver.current_window_handle
    driver.switch_to.new_window("tab")
    second = driver.current_window_handle
    for tab, old, new in ((first, "one", "ONE"), (second, "three", "THREE")):
        driver.switch_to.window(tab)
        browser.slot("shared", "edit")
        browser.edit(old, new)
    for number in range(25):
        slot.append(f"line {number}")
    browser.wait(lambda: "saving merges" in browser.text)
    driver.switch_to.window(first)
    browser.submit("main form button")
    assert "merged with what others wrote" in browser.text
    browser.js("window.isSame = true")
    for number in range(25, 50):
        slot.append(f"line {number}")
    browser.wait(lambda: "cli: append" in browser.find("#live").text)
    driver.switch_to.window(second)
    browser.submit("main form button")
    assert "merged with what others wrote" in browser.text
    assert "line 49" in browser.text
    driver.close()
    driver.switch_to.window(first)
    browser.wait(lambda: "THREE" in browser.text and "line 49" in browser.text)
    assert browser.js("return window.isSame")

    lines = slot.read().content.split("\n")
    assert lines == ["ONE", "two", "THREE", *(f"line {n}" for n in range(50))]


def append_lines(store, count):
    """Append lines by the command, each time from a process of its own."""
    for number in range(count):
        words = ["append", "busy", f"line {number}", "--store", str(store)]
        subprocess.run(
            [sys.executable, "-m", "crdtmem", *words, "--project", "demo", "--quiet"],
            check=True,
            cwd=store.parent,
            env={**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(store.parent)},
            timeout=PATIENCE_S,
        )


@pytest.mark.requirement("serve-8")
@pytest.mark.skipif(PROFILE != "campaign", reason="long: for the campaign")
def test_two_browsers_edit_a_slot_to_which_commands_append(browser, tmp_path):
    memory = browser.memory
    rows = [f"{name} {n}" for name in ("left", "right") for n in range(5)]
    slot = memory.slot(memory.create("busy", "\n".join(rows)).label)
    sessions = memory.path.parent / "serve"
    [running] = [p for p in sessions.glob("*.json") if p.stem.isdecimal()]
    about = json.loads(running.read_text(encoding="utf-8"))
    with chromium(tmp_path / "profile") as driver:
        other = Browser(driver, browser.base, memory)
        driver.get(invited(about))
        other.wait(lambda: other.all("nav"))
        thread = threading.Thread(target=append_lines, args=(memory.path, 50))
        thread.start()
        told = []
        for number in range(5):
            for one, name in ((browser, "left"), (other, "right")):
                one.slot("busy", "edit")
                one.edit(f"{name} {number}", f"{name.upper()} {number}")
            for one in (browser, other):
                one.submit("main form button")
                told.append(one.text)
        browser.js("window.isSame = true")
        other.js("window.isSame = true")
        thread.join()
        for one in (browser, other):
            one.wait(lambda one=one: "line 49" in one.text)
            one.wait(lambda one=one: "RIGHT 4" in one.text)
            assert one.js("return window.isSame")
            assert all(row.upper() in one.text for row in rows)

    lines = slot.read().content.split("\n")
    assert lines == [*(row.upper() for row in rows), *(f"line {n}" for n in range(50))]
    assert sum("merged with what others wrote" in text for text in told) >= 5
    assert all("Saved" in text for text in told)


def invited(about):
    """Return a new one-time address of a running server."""
    request = urllib.request.Request(
        f"{about['base']}/session/invite",
        method="POST",
        headers={"Authorization": f"Bearer {about['control']}"},
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as reply:
        return json.load(reply)["url"]


def test_who_has_a_slot_open_in_an_editor_is_shown_while_that_is_so(browser):
    browser.memory.create("opened", "text")
    browser.slot("opened")
    browser.wait(browser.is_live)
    address = f"{browser.base.replace('http', 'ws')}/yjs/demo/opened"
    browser.js("window.editor = new WebSocket(arguments[0])", address)
    browser.wait(lambda: "(editor)" in browser.text)
    browser.js("window.editor.close()")
    browser.wait(lambda: "(editor)" not in browser.text)


@pytest.mark.requirement("serve-9")
@pytest.mark.requirement("serve-11")
def test_every_page_is_read_and_a_form_sent_without_javascript(browser):
    slot = browser.memory.slot(browser.memory.create("plain", "as it was").label)
    paths = seed_pages(browser.memory, "unscripted")
    browser.run("Emulation.setScriptExecutionDisabled", value=True)
    try:
        for path in paths[::UNSCRIPTED_STRIDE]:
            browser.go(path)
            assert browser.find("main h1").text, path
            assert browser.find("html").get_attribute("data-live") is None, path
        browser.slot("plain")
        view = slot.read()
        figures = f"rev {view.rev} · {view.size} of {view.size_limit:,} units"
        assert figures in browser.find("main").text
        browser.find("#text").send_keys("by hand")
        button = browser.find("[action$=append] button")
        ActionChains(browser.driver).double_click(button).perform()
        browser.wait(lambda: browser.all(".done"))
        assert "by hand" in browser.find(".text").text
    finally:
        browser.run("Emulation.setScriptExecutionDisabled", value=False)

    assert slot.read().content == "as it was\nby hand"


@pytest.mark.requirement("serve-13")
def test_edit_undo_and_search_work_by_keys_alone(browser):
    memory = browser.memory
    slot = memory.slot(memory.create("keyed", "one wombat").label)
    browser.slot("keyed")
    browser.find("body").send_keys("e")
    browser.wait(lambda: browser.all("#content"))
    browser.find("#content").send_keys("X", Keys.TAB)
    save = browser.driver.switch_to.active_element
    assert (
        browser.js("return getComputedStyle(arguments[0]).outlineStyle", save) != "none"
    )
    save.send_keys(Keys.ENTER)
    browser.wait(lambda: "Saved." in browser.text)
    assert slot.read().rev == 1

    browser.slot("keyed", "history")
    browser.wait(browser.is_live)
    browser.find("body").send_keys("j")
    browser.driver.switch_to.active_element.send_keys(Keys.TAB)
    undo = browser.driver.switch_to.active_element
    slot.append("by another")
    show = browser.wait(lambda: browser.all(".offered button"))[0]
    assert browser.driver.switch_to.active_element == undo
    browser.js("arguments[0].focus()", show)
    show.send_keys(Keys.ENTER)
    browser.wait(lambda: "rev 2" in browser.text and not browser.all(".offered"))
    held = browser.js("return document.activeElement.dataset.part")
    assert held == "entries"
    browser.js("document.querySelectorAll('[action$=undo] button')[1].focus()")
    browser.driver.switch_to.active_element.send_keys(Keys.ENTER)
    browser.wait(lambda: "Undone." in browser.text)
    assert slot.read().content == "one wombat\nby another"

    browser.find("body").send_keys("/")
    browser.driver.switch_to.active_element.send_keys("wombat", Keys.ENTER)
    browser.wait(lambda: "1 found" in browser.text)
    browser.find("body").send_keys("?")
    browser.wait(lambda: "Single keys are shortcuts" in browser.text)


@pytest.fixture(scope="module")
def axe():
    """Return the source of axe-core."""
    AXE_FOLDER.mkdir(parents=True, exist_ok=True)
    script = AXE_FOLDER / "node_modules" / "axe-core" / "axe.min.js"
    options = ["--no-audit", "--no-fund", "--ignore-scripts", "--no-save"]
    if not script.exists():
        subprocess.run(
            ["npm", "install", *options, "--prefer-offline", AXE],
            cwd=AXE_FOLDER,
            check=True,
            timeout=INSTALL_TIMEOUT_S,
        )
    return script.read_text(encoding="utf-8")


RUN_AXE = """
const [only, done] = arguments
const options = {resultTypes: ['violations'], runOnly: only}
axe.run(document, options).then(
  found => done(found.violations.map(
    v => `${v.id}: ${v.nodes.map(n => n.target.join(' ')).join(', ')}`)),
  error => done([String(error)]))
"""
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
# What another theme and another width can change.
VISUAL = ["color-contrast", "target-size", "scrollable-region-focusable"]


def seed_pages(memory, label):
    """Write something for each page, and return their paths."""
    slot = memory.slot(memory.create(label, "one\ntwo \u202e", size_limit=100).label)
    slot.append("3")
    slot.replace("x" * 91, base_rev=1)
    entry = slot.history().entries[0]
    bound = memory.bind(partition_key=label)
    bound.memory_set("facts").add(["tea"], [{"a": 1}], ids=["a"])
    where = f"partition={quote(bound.binding.encoded_key, safe='')}&set=facts"
    slot = f"/p/demo/slots/project/{label}"
    return [
        "/p/demo/slots",
        f"{slot}/restore?id={entry.id}",
        slot,
        f"{slot}/settings",
        f"{slot}/history",
        "/p/demo/new",
        "/p/demo/search?q=one+OR+tea+OR+xxx",
        f"{slot}/edit",
        f"{slot}/diff?from=0&to=2",
        f"{slot}/delete",
        f"{slot}/append",
        "/p/demo/sets",
        f"/p/demo/sets?{where}",
        f"/p/demo/sets/history?{where}",
        f"/p/demo/sets/item?{where}&id=a",
        "/p/demo/condense",
        "/p/demo/status?doctor=run",
        "/p/demo/status/repair",
        "/p/demo/activity",
        "/settings",
        "/nowhere",
    ]


@pytest.mark.requirement("serve-13")
@pytest.mark.node
@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_axe_finds_nothing_on_the_pages_in_both_themes_and_at_320_px(browser, axe):
    driver = browser.driver
    found = {}
    paths = seed_pages(browser.memory, "seen")
    for theme in ("light", "dark"):
        driver.add_cookie({"name": "crdtmem_theme", "value": theme, "path": "/"})
        is_narrow = theme == "dark"
        if is_narrow:
            browser.run("Emulation.setDeviceMetricsOverride", **NARROW)
        for path in paths[is_narrow and STRIDE // 2 :: STRIDE]:
            browser.go(path)
            browser.js(axe)
            found[theme, path] = driver.execute_async_script(
                RUN_AXE, VISUAL if is_narrow else TAGS
            )
            width = browser.js("return document.documentElement.scrollWidth")
            assert width <= (NARROW["width"] if is_narrow else width), path
    browser.run("Emulation.clearDeviceMetricsOverride")

    assert {where: what for where, what in found.items() if what} == {}
