"""Opens the page in the web browser of the person at this machine, if there is one with a window.

A browser in the terminal, such as w3m, would take over the terminal of the server, so it is not used. Neither is any
browser on a machine without a display, as behind SSH.
"""

import os
import sys
import threading
import webbrowser


def open_in_browser(url: str) -> bool:
    """Open `url` in a web browser with a window, without waiting for it; return False if there is none."""
    if not has_display():
        return False
    try:
        browser = webbrowser.get()
    except webbrowser.Error:
        return False
    if type(browser) is webbrowser.GenericBrowser:  # a browser in the terminal; its subclass runs in the background
        return False
    threading.Thread(target=browser.open, args=(url,), daemon=True).start()
    return True


def has_display() -> bool:
    """Return True if programs of this process can show windows."""
    if sys.platform in ("darwin", "win32"):
        return "SSH_CONNECTION" not in os.environ
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
