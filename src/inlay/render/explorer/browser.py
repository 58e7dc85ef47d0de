"""Opens the page in the web browser of the person at this machine, if there is one.

The browser that the environment variable BROWSER names is used anywhere. Otherwise it has to have a window: a browser
in the terminal, such as w3m, would take over the terminal of the server, and without a display no other one starts.
"""

import os
import sys
import threading
import webbrowser


def open_in_browser(url: str) -> bool:
    """Open `url` in a web browser, without waiting for it; return False if there is none."""
    is_chosen = bool(os.environ.get("BROWSER"))
    if not is_chosen and not has_display():
        return False
    try:
        browser = webbrowser.get()
    except webbrowser.Error:
        return False
    # A browser in the terminal has this class, one in the background a subclass of it.
    if type(browser) is webbrowser.GenericBrowser and not is_chosen:
        return False
    threading.Thread(target=browser.open, args=(url,), daemon=True).start()
    return True


def has_display() -> bool:
    """Return True if programs of this process can show windows on the machine of the person."""
    if sys.platform in ("darwin", "win32"):
        return "SSH_CONNECTION" not in os.environ
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
