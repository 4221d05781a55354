"""Every page and every example: no exception, and the numbers on it are those of the package."""

from __future__ import annotations

import sys
from pathlib import Path
from urllib.parse import urlencode

import pytest

from rooflinesim.api import Scenario, predict
from rooflinesim.api.scheduling import schedule

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "app"))

from presets import PRESETS  # noqa: E402
from state import VIEWS  # noqa: E402

LLAMA, QWEN = "meta-llama/Llama-3.1-8B", "Qwen/Qwen3-30B-A3B"


def link(page) -> dict[str, list[str]]:
    """The page's query as lists."""
    return {key: [text] if isinstance(text, str) else list(text) for key, text in page.query_params.items()}


def metrics(page) -> dict[str, str]:
    return {metric.label: metric.value for metric in page.metric}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("model", [LLAMA, QWEN])
def test_every_page_draws(open_page, view, model):
    page = open_page(urlencode({"view": view, "model": model}))
    assert any("Assumed" in text.value for text in page.markdown)


@pytest.mark.parametrize("name", list(PRESETS))
def test_every_example_draws_what_predict_says(open_page, name):
    page = open_page()
    page.selectbox(key="preset").set_value(name).run()
    assert not page.exception and not page.error
    import state

    held, problems = state.decode(PRESETS[name])
    assert problems == []
    asked = Scenario(
        gpu=held["gpu"],
        model=held["model"],
        draft=held["draft"],
        engine=held["engine"],
        tp=held["tp"],
        ep=held["ep"],
        weights=None if held["weights"] == "as released" else held["weights"],
        batch_sizes=(held["bs"],),
        context_tokens=(held["ctx"],),
        k_max=held["kmax"],
        workload=held["workload"],
        al=f"{held['alk']}:{held['al']:g}" if held["form"] == "al" else None,
        max_num_seqs=held["seqs"] or None,
    )
    point = predict(asked).points[0]
    shown = metrics(page)
    assert shown["Best choice"] == ("SD off" if point.choice == "off" else f"K = {point.best_k}")
    assert shown[f"Speed-up at K = {point.best_k}"] == f"{point.best_row.speedup:.2f}×"
    assert shown["Largest batch"] == f"{point.largest_batch:,}"


def test_a_slider_changes_the_answer_and_the_link(open_page):
    page = open_page(urlencode({"model": LLAMA, "bs": 8}))
    before = metrics(page)
    page.select_slider(key="bs").set_value(256).run()
    after = metrics(page)
    assert before["Goodput"] != after["Goodput"]
    assert link(page)["bs"] == ["256"]
    point = predict(Scenario(gpu="h100-sxm", model=LLAMA, batch_sizes=(256,))).points[0]
    assert after["Best choice"] == ("SD off" if point.choice == "off" else f"K = {point.best_k}")


def test_a_link_is_the_whole_state(open_page):
    query = {
        "gpu": "b200-sxm",
        "model": QWEN,
        "draft": "ngram",
        "engine": "sglang-0.5.23",
        "tp": "2",
        "ep": "2",
        "weights": "fp8",
        "kv": "fp8",
        "bs": "48",
        "ctx": "8192",
        "kmax": "6",
        "form": "c1",
        "c1": "0.66",
        "decay": "0.95",
        "skew": "0.5",
        "graphs": "0",
    }
    page = open_page(urlencode(query))
    assert link(page) == {key: [text] for key, text in query.items()}
    asked = Scenario(
        gpu="b200-sxm", model=QWEN, draft="ngram", engine="sglang-0.5.23", tp=2, ep=2, weights="fp8",
        kv="fp8", batch_sizes=(48,), context_tokens=(8192,), k_max=6, accept="0.66,0.95", skew=0.5,
        graphs=False,
    )  # fmt: skip
    point = predict(asked).points[0]
    assert metrics(page)[f"Speed-up at K = {point.best_k}"] == f"{point.best_row.speedup:.2f}×"


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("bs=many", "is not a number"),
        ("bs=0", "is not in 1..100000"),
        ("view=Wat", "did you mean"),
        ("batch=8", "unknown link parameter"),
        ("graphs=yes", "is not 0 or 1"),
        ("bs=nan", "is not a number"),
        ("c1=nan", "is not in 0..1"),
    ],
)
def test_a_broken_link_says_so_and_still_draws(open_page, query, says):
    page = open_page(query)
    assert any(says in box.value for box in page.warning)
    assert metrics(page)["Best choice"]


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("gpu=h1000", "unknown gpu 'h1000'"),
        ("gpu=/etc/passwd", "unknown gpu"),
        ("gpu=../hw_specs/gpus/h100-sxm.yaml", "unknown gpu"),
        ("model=../../secret/config.json", "unknown model"),
        ("model=./x", "unknown model"),
        ("draft=~/x.json", "unknown draft"),
        ("engine=C:\\x.yaml", "unknown engine"),
        ("model=upload:mine.json", "upload it again"),
        ("tp=3", "does not divide"),
        ("ep=2", "has no experts"),
        ("model=Qwen%2FQwen3-30B-A3B&ep=2", "must divide tp*dp"),
        ("form=marginal&marginal=.5,.9", "marginal"),
        ("form=conditional&conditional=72,60", "fraction"),
        ("form=file", "upload one"),
        ("weights=int3", "is not one of"),
        ("form=al&alk=2&al=9", "al"),
    ],
)
def test_what_does_not_go_together_is_one_red_line(open_page, query, says):
    page = open_page(query, may_err=True)
    assert len(page.error) == 1
    text = page.error[0].value.replace("\\", "")
    assert says.lower() in text.lower() and "\n" not in text and "Traceback" not in text


def test_not_fitting_is_a_state_with_the_missing_memory(open_page):
    page = open_page("model=meta-llama%2FLlama-3.1-405B")
    point = predict(Scenario(gpu="h100-sxm", model="meta-llama/Llama-3.1-405B")).points[0]
    assert not point.fits
    text = next(box.value for box in page.warning if "Does not fit" in box.value)
    assert f"{point.short_bytes / 1024**3:.1f} GiB" in text and "not even one sequence fits" in text
    assert metrics(page)["Largest batch"] == "0"


def test_an_input_is_never_changed_by_itself(open_page):
    head = "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"
    page = open_page(urlencode({"draft": head}))
    page.selectbox(key="model").set_value(QWEN).run()
    assert page.selectbox(key="draft").value == head
    assert any("was made for" in box.value for box in page.warning)


def test_values_of_hidden_inputs_survive(open_page):
    page = open_page("form=c1&c1=0.61")
    page.selectbox(key="form").set_value("al").run()
    page.selectbox(key="form").set_value("c1").run()
    assert page.slider(key="c1").value == pytest.approx(0.61)


def test_the_schedule_page_shows_what_schedule_says(open_page):
    page = open_page(urlencode({"view": "Schedule", "model": LLAMA}))
    answer = schedule(Scenario(gpu="h100-sxm", model=LLAMA))
    assert metrics(page)["Ranges"] == str(len(answer.schedule.ranges))
    assert "num_speculative_tokens" in page.code[0].value


@pytest.mark.parametrize("kind", ["vllm", "sglang", "trtllm"])
def test_schedules_for_three_engines(open_page, kind):
    page = open_page(urlencode({"view": "Schedule", "model": LLAMA, "emit": kind}))
    assert page.code[0].value.strip()


def test_schedule_without_a_drafter_explains_itself(open_page):
    page = open_page("view=Schedule&draft=none")
    assert any("no K to choose" in box.value for box in page.info)


def test_why_shows_experts_only_for_moe(open_page):
    for model, shown in ((LLAMA, False), (QWEN, True)):
        page = open_page(urlencode({"view": "Why", "model": model, "bs": 16}))
        assert any("Experts read" in text.value for text in page.markdown) is shown


def test_compare_keeps_marks_and_drops(open_page):
    page = open_page(urlencode({"view": "Compare", "model": LLAMA}))
    page.button[0].click().run()
    assert link(page)["vs"] == ["gpu=h100-sxm&model=meta-llama%2FLlama-3.1-8B"]
    page.selectbox(key="gpu").set_value("b200-sxm").run()
    assert not page.exception
    table = page.dataframe[0].value
    marks = dict(zip(table["what"], table["differs"], strict=True))
    assert marks["GPU"] == "≠" and marks["model"] == ""
    page.button(key="drop_0").click().run()
    assert "vs" not in link(page)


def test_compare_links_take_four_scenarios_at_most(open_page):
    from streamlit.testing.v1 import AppTest

    page = AppTest.from_file(str(ROOT / "app" / "streamlit_app.py"), default_timeout=60)
    page.query_params["view"] = "Compare"
    page.query_params["vs"] = [f"bs={n}" for n in (1, 2, 4, 8, 16, 32)]
    page.run()
    assert not page.exception and not page.error
    assert len(page.dataframe[0].value.columns) == 2 + 4


@pytest.mark.parametrize(
    "query",
    [
        "bs=100000&ctx=10000000&kmax=32",
        "view=Best K map&bs=100000&ctx=10000000&kmax=32",
        "view=Schedule&maxbatch=2048&kmax=32&distinct=8&regret=20",
        "view=Schedule&seqs=2048&kmax=32&distinct=3&regret=0",
        "view=Why&bs=100000&kmax=32&k=32",
    ],
)
def test_the_largest_inputs_answer_in_bounded_time(open_page, query):
    import time

    start = time.perf_counter()
    open_page(query.replace(" ", "%20"))
    assert time.perf_counter() - start < 30.0


def test_accuracy_names_the_campaigns_behind_the_scenario(open_page):
    page = open_page(urlencode({"view": "Accuracy", "model": LLAMA, "draft": "eagle3"}))
    texts = " ".join(text.value for text in page.markdown)
    assert "2025_eagle3_table3" in texts and "same GPU, model" in texts
    assert "K-regret" in texts


@pytest.mark.parametrize("view", VIEWS)
def test_every_input_says_what_it_means(open_page, view):
    page = open_page(urlencode({"view": view, "form": "c1"}))
    inputs = [*page.selectbox, *page.slider, *page.select_slider, *page.number_input, *page.text_input]
    assert inputs and [item.label for item in inputs if not item.help] == []


def test_two_sessions_share_nothing(open_page):
    first, second = open_page("bs=8"), open_page("bs=8")
    first.selectbox(key="gpu").set_value("b200-sxm").run()
    second.run()
    assert second.selectbox(key="gpu").value == "h100-sxm"


def test_speculation_that_does_not_pay_is_said(open_page):
    page = open_page(urlencode({"model": LLAMA, "bs": 512, "form": "c1", "c1": "0.1"}))
    assert metrics(page)["Best choice"] == "SD off"


@pytest.mark.parametrize("key", ["gpu", "model", "draft", "engine", "view", "weights", "unknown"])
def test_markup_in_a_link_stays_text(open_page, key):
    page = open_page(urlencode({key: "![x](https://example.com/x.png)"}), may_err=True)
    for box in [*page.error, *page.warning, *page.markdown, *page.caption]:
        assert "![x](" not in box.value
