"""Recordings of what calls do."""

import json

import numpy as np
from conftest import raises

import teatime

X = np.arange(600, dtype=np.float32).reshape(30, 20) % 7


def spans(timeline, folder):
    """The categories and names of the spans in the trace."""
    timeline.write_trace(folder / "t.json")
    events = json.loads((folder / "t.json").read_text())["traceEvents"]
    return [(event["cat"], event["name"]) for event in events if event["ph"] == "X"]


def test_calls_within_are_recorded(tmp_path):
    with teatime.Timeline() as timeline:
        teatime.pairwise_distance(X, device="cpu")
        with teatime.Timeline() as inner:
            teatime.truncated_svd(X, 2, device="cpu")
    teatime.gaussian_filter(X, 1, device="cpu")
    outer = spans(timeline, tmp_path)
    assert any(kind == "kernel" for kind, _ in outer) and not any("correlate" in name for _, name in outer)
    # The innermost records alone.
    assert "host algebra" not in dict(outer) and "host algebra" in dict(spans(inner, tmp_path))
    timeline.write_report(tmp_path / "r.html", title="a <run>")
    page = (tmp_path / "r.html").read_text()
    assert "<h1>a &lt;run&gt;</h1>" in page and timeline.bound()[1:] in page
    assert timeline.events()[0] > 0 and timeline.events()[1] == 0


def test_what_is_refused(tmp_path):
    raises(ValueError, "`events`", teatime.Timeline, events=-1)
    timeline = teatime.Timeline(events=2)
    raises(OSError, "absent", timeline.write_trace, tmp_path / "absent" / "t.json")
    with timeline:
        teatime.pairwise_distance(X, device="cpu")
    kept, dropped = timeline.events()
    assert kept == 2 and dropped > 0
