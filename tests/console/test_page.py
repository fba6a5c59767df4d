"""The page in a real browser, on a server of its own process: what people see, type, and must never be done to them."""

import json
from collections.abc import Iterator

import pytest

from oncelog.console.faults import Fault
from oncelog.console.limits import WHOLE_BYTES
from oncelog.flow import Flow, Topic, raw
from tests.console.browser import DESKTOP, PHONE, Browser
from tests.console.served import Served
from tests.console.stage import SCRIPT, Stage
from tests.runner.flows import make_topic

SINK = "oncelog.sink.orders-by-customer"
# Where to go, the heading that is there, and something that only the answered view says.
VIEWS = {
    "overview": ("Overview", "duplicates refused"),
    "cluster": ("Cluster", "This server stands alone."),
    "topics": ("Topics", "payments"),
    "topic?topic=orders": ("orders", "customer"),
    "topic?topic=orders&partition=2&offset=5": ("orders", "older"),
    "topic?topic=orders&show=partitions": ("orders", "first offset"),
    "topic?topic=hostile&show=settings": ("hostile", "max.message.bytes"),
    "topic?topic=hostile&open=0%2F6": ("hostile", "headers, the first ones are shown"),
    "topic?topic=billion": ("billion", "1,000,000,001"),
    "producers?topic=payments&partition=0": ("Producers", "40 leases in a ring of 65,536"),
    "groups": ("Groups", "billing"),
    "group?group=billing": ("billing", "Nobody is in it"),
    "spark": ("Spark queries", "orders-by-customer"),
    f"sink?topic={SINK}": ("orders-by-customer", "totals/3: 6,000"),
    "flows": ("Flows", "invoices"),
    "flow?topic=oncelog.flow.invoices": ("invoices", "left"),
    "faults": ("Faults", "kill -9"),
    "topic?topic=nowhere": ("Not there", "no such topic"),
}
NAMELESS = """[...document.querySelectorAll("a, button, input, nav, svg, [role=region]")]
    .filter((each) => !(each.textContent ?? "").trim() && !each.ariaLabel && !each.labels?.length
        && each.ariaHidden !== "true")
    .map((each) => each.outerHTML.slice(0, 100))"""
LOOKS = {"desktop, light": (DESKTOP, "light"), "phone, dark": (PHONE, "dark")}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("served"), {"oncelog.records.check": "off"}) as server:
        stage = Stage(server.port)
        stage.orders()
        stage.hostile()
        stage.quarrel()
        stage.a_billion_rows()
        stage.sink()
        stage.group("billing", "orders", {partition: 30 - partition for partition in range(6)})
        stage.close()
        make_topic(f"127.0.0.1:{server.port}", "bills", 1)
        make_topic(f"127.0.0.1:{server.port}", "sums", 1)
        invoices = Flow("invoices", version="1")
        invoices.read(Topic("bills", raw, raw)).write(Topic("sums", raw, raw))
        invoices.run({"bootstrap.servers": f"127.0.0.1:{server.port}"}, until="end")
        server.faults.add(Fault(at_ms=1_700_000_000_000, kind="server", words="kill -9 after 1,000 messages"))
        yield server
        assert "Traceback" not in server.log_text(), server.log_text()[-4000:]


@pytest.fixture
def browser(one_browser: Browser, served: Served) -> Iterator[Browser]:
    """Nothing may be left in its console."""
    one_browser.leave()
    one_browser.resize(DESKTOP)
    one_browser.prefer("light")
    yield one_browser
    assert one_browser.errors == []


def go(browser: Browser, served: Served, view: str, heading: str) -> None:
    browser.open("about:blank")  # or the next would be a move within the page
    browser.open(f"{served.page}#/{view}")
    browser.wait(f"document.querySelector('h1')?.innerText.trim().startsWith({json.dumps(heading)})", heading)


def focused(browser: Browser) -> str:
    return str(browser.run("document.activeElement.innerText || document.activeElement.ariaLabel || ''")).strip()


def tab_to(browser: Browser, what: str, most: int = 40) -> None:
    """By the Tab key alone."""
    seen = []
    for _ in range(most):
        browser.press("Tab")
        seen.append(focused(browser))
        if seen[-1] == what:
            return
    raise AssertionError(f"{what!r} is not reached by Tab; these are: {seen}")


# --- every view


@pytest.mark.parametrize("look", LOOKS)
def test_every_view_opens_fits_and_names_everything(browser: Browser, served: Served, look: str) -> None:
    size, scheme = LOOKS[look]
    browser.resize(size)
    browser.prefer(scheme)
    for view, (heading, words) in VIEWS.items():
        go(browser, served, view, heading)
        browser.sees(words)
        wide = browser.run("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, f"{view} is {wide} pixels too wide for a {look}"
        assert browser.run(NAMELESS) == [], f"{view}: those who cannot see it know these by no name"
        assert browser.run("document.querySelectorAll('h1').length") == 1
        if "nowhere" in view:
            assert all("404" in error for error in browser.errors)
            browser.errors.clear()  # the browser's own word for the answer that was asked for
        assert browser.errors == [], view


@pytest.mark.parametrize(("scheme", "is_dark"), [("light", False), ("dark", True)])
def test_colours_follow_the_system(browser: Browser, served: Served, scheme: str, is_dark: bool) -> None:
    browser.prefer(scheme)
    go(browser, served, "overview", "Overview")
    assert is_darker(browser) == is_dark


def is_darker(browser: Browser) -> bool:
    """The ground than the text on it."""
    script = (
        "(() => { const style = getComputedStyle(document.documentElement);"
        " const sum = (colour) => colour.match(/[0-9.]+/g).slice(0, 3).map(Number).reduce((a, b) => a + b);"
        " return sum(style.backgroundColor) < sum(style.color); })()"
    )
    return bool(browser.run(script))


def test_a_theme_can_be_chosen_and_stays(browser: Browser, served: Served) -> None:
    go(browser, served, "overview", "Overview")
    for _ in range(2):
        browser.run("document.getElementById('theme').click()")
    assert is_darker(browser)
    go(browser, served, "topics", "Topics")
    assert is_darker(browser)
    browser.run("document.getElementById('theme').click()")
    assert not is_darker(browser)
    assert browser.text("#theme") == "Theme: auto"


# --- by keyboard alone


def test_the_page_is_used_by_keyboard_alone(browser: Browser, served: Served) -> None:
    go(browser, served, "overview", "Overview")
    browser.press("Tab")
    assert focused(browser) == "To the content"
    tab_to(browser, "Topics")
    browser.press("Enter")
    browser.wait("document.activeElement.innerText === 'Topics' && document.activeElement.localName === 'h1'", "Topics")
    browser.press("/")
    assert focused(browser) == "Search topics"
    browser.write("orde")
    browser.wait("document.querySelectorAll('tbody tr').length === 2", "the search")
    assert focused(browser) == "Search topics", "what is typed is not taken away by what is found"
    tab_to(browser, "orders")
    browser.press("Enter")
    browser.wait("document.activeElement.innerText === 'orders'", "the topic")
    tab_to(browser, "39")
    at = browser.run("document.activeElement.closest('tr').innerText")
    browser.press("Enter")
    browser.wait("document.activeElement.ariaExpanded === 'true'", "the message")
    assert browser.run("document.activeElement.closest('tr').innerText") == at
    assert "in a batch of 40 records" in browser.text("tr.whole")
    browser.press("Enter")
    browser.wait("document.querySelector('tr.whole') === null", "the message closed again")
    assert focused(browser) == "39"


@pytest.mark.parametrize("view", ["Producers", "Groups", "Spark", "Faults", "Overview"])
def test_every_view_is_reached_by_keyboard(browser: Browser, served: Served, view: str) -> None:
    go(browser, served, "topics", "Topics")
    tab_to(browser, view)
    browser.press("Enter")
    browser.wait(f"document.activeElement.localName === 'h1' && document.title.startsWith('{view}')", view)
    visible = browser.run("document.activeElement.getBoundingClientRect().top >= 0")
    assert visible


# --- what is shown may be anyone's


def test_hostile_messages_are_text(browser: Browser, served: Served) -> None:
    go(browser, served, "topic?topic=hostile&open=0%2F0", "hostile")
    browser.sees(SCRIPT)
    browser.sees("onerror=")
    browser.sees("\\xff\\xfe caf\\xe9")
    browser.sees("abc\\u202egpj.exe")
    assert browser.run("document.scripts.length") == 1
    assert browser.run("document.images.length") == 1, "the page's own"
    assert browser.run("document.title") == "hostile · oncelog"
    assert browser.run("[...document.links].every((each) => each.href.startsWith(location.origin + '/#'))")


def test_a_megabyte_is_cut_and_says_so(browser: Browser, served: Served) -> None:
    go(browser, served, "topic?topic=hostile&open=0%2F5", "hostile")
    browser.sees("the beginning")
    browser.sees("1.05 MB")
    assert len(browser.text("body")) < 2 * WHOLE_BYTES
    assert browser.run("document.body.scrollHeight") < 20_000


def test_a_script_that_got_in_would_not_run(browser: Browser, served: Served) -> None:
    """The second lock, should the first one fail."""
    go(browser, served, "overview", "Overview")
    browser.run("window.ran = 0")
    refused = browser.run(
        "(() => { try { document.body.innerHTML = '<img src=x onerror=\"ran = 1\">'; return false; } "
        "catch { return true; } })()"
    )
    assert refused
    browser.run(
        "(() => { const script = document.createElement('script');"
        " try { script.textContent = 'ran = 2'; } catch { return; } document.head.append(script); })()"
    )
    assert browser.run("window.ran") == 0
    browser.errors.clear()  # the browser tells what it has refused


def test_json_is_set_out_and_no_number_changes(browser: Browser, served: Served) -> None:
    stage = Stage(served.port)
    stage.topic("json")
    large = b'{"big":12345678901234567890,"list":[1,{}],"text":"a, {b}: \\"c\\"","none":[]}'
    stage.send("json", [large, b'{"not": json}', b"[" * 9000 + b"]" * 9000])
    stage.close()
    go(browser, served, "topic?topic=json&open=0%2F0", "json")
    wanted = [
        "{",
        '  "big": 12345678901234567890,',
        '  "list": [',
        "    1,",
        "    {}",
        "  ],",
        '  "text": "a, {b}: \\"c\\"",',
        '  "none": []',
        "}",
    ]
    browser.sees("12345678901234567890,\n", "tr.whole dd:last-child pre")
    assert browser.text("tr.whole dd:last-child pre").splitlines() == wanted
    go(browser, served, "topic?topic=json&open=0%2F1", "json")
    browser.sees('{"not": json}', "tr.whole dd:last-child pre")
    go(browser, served, "topic?topic=json&open=0%2F2", "json")
    browser.sees("[[[[", "tr.whole dd:last-child pre")
    assert len(browser.text("tr.whole dd:last-child pre")) == 18_000, "and not set out"


# --- as it happens


def test_messages_appear_as_they_come_and_stand_still_for_a_reader(browser: Browser, served: Served) -> None:
    stage = Stage(served.port)
    stage.topic("live", 2)
    go(browser, served, "topic?topic=live", "live")
    browser.sees("No message is there.")
    stage.send("live", [b"the first"])
    browser.sees("the first")
    browser.run("document.querySelector('#messages a').focus()")
    browser.sees("Stands still while you are in the list.")
    stage.send("live", [b"the second"], 1)
    browser.run("performance.clearResourceTimings()")
    browser.wait("performance.getEntriesByType('resource').length >= 4", "two more looks")
    assert "the second" not in browser.text()
    browser.run("document.activeElement.blur()")
    browser.sees("the second")
    stage.close()


def test_faults_appear_as_they_happen(browser: Browser, served: Served) -> None:
    go(browser, served, "faults", "Faults")
    served.faults.add(Fault(at_ms=1_700_000_001_000, kind="connections", words="cut within the answer 17"))
    browser.sees("cut within the answer 17")
    assert browser.run("document.querySelector('tbody tr').innerText").count("connections") == 1, (
        "the newest comes first"
    )


def test_nobody_looks_at_a_tab_in_the_background(browser: Browser, served: Served) -> None:
    go(browser, served, "overview", "Overview")
    browser.run(
        "Object.defineProperty(document, 'hidden', { configurable: true, get: () => true });"
        " document.dispatchEvent(new Event('visibilitychange'))"
    )
    asked = browser.run(
        "new Promise((done) => setTimeout(() => { performance.clearResourceTimings();"
        " setTimeout(() => done(performance.getEntriesByType('resource').length), 1600); }, 300))"
    )
    assert asked == 0
    browser.run("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
    browser.wait("performance.getEntriesByType('resource').length > 0", "looks again")


def test_it_says_when_the_network_is_cut_and_comes_back(browser: Browser, served: Served) -> None:
    go(browser, served, "topics", "Topics")
    browser.sees("payments")
    browser.offline(True)
    browser.sees("The server does not answer", "#status")
    assert "payments" in browser.text(), "what was known is still there to be read"
    browser.offline(False)
    browser.wait("document.getElementById('status').innerText === ''", "the connection")
    browser.errors.clear()  # the browser's own words for what could not be asked


def test_it_says_when_the_server_is_gone_and_shows_the_next_one(browser: Browser, served: Served) -> None:
    go(browser, served, "topics", "Topics")
    served.kill()
    browser.sees("The server does not answer", "#status")
    served.start()
    with_more = Stage(served.port)
    with_more.topic("made-after-the-crash")
    with_more.close()
    browser.sees("made-after-the-crash")
    browser.wait("document.getElementById('status').innerText === ''", "the connection")
    assert not browser.run("document.body.classList.contains('lost')")
    browser.errors.clear()
