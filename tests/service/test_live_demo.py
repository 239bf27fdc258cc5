"""What the live demonstration rests on: a dataset that continues under other terms, and a key that stays secret."""

from __future__ import annotations

import webbrowser

from csdp.demo import live


def test_the_key_is_on_no_command_line(tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setenv("DISPLAY", ":7")
    live._open_browser(tmp_path, "http://127.0.0.1:1/#key=csdp_secret")
    (address,) = opened
    assert "csdp_secret" not in address
    page = tmp_path / "open.html"
    assert page.stat().st_mode & 0o077 == 0
    assert "#key=csdp_secret" in page.read_text()
    monkeypatch.delenv("DISPLAY")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    live._open_browser(tmp_path, "http://127.0.0.1:1/#key=csdp_secret")
    assert len(opened) == 1
