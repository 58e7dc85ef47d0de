/**
 * The choice of the theme: that of the system, light or dark, kept by the browser.
 */

import { forgetColors, setTheme } from "./colors.js";

const THEME_KEY = "inlay-explorer-theme";

/** Connect the menu of themes; `redraw` draws the page in its new colors. */
export function connectThemeMenu(select, redraw) {
  const choice = readSetting() ?? "auto";
  select.value = choice;
  setTheme(choice);
  select.addEventListener("change", () => {
    writeSetting(select.value);
    setTheme(select.value);
    redraw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    forgetColors();
    redraw();
  });
}

function readSetting() {
  try {
    const choice = localStorage.getItem(THEME_KEY);
    return ["auto", "light", "dark"].includes(choice) ? choice : null;
  } catch {
    return null;
  }
}

function writeSetting(choice) {
  try {
    localStorage.setItem(THEME_KEY, choice);
  } catch {
    // A browser that stores nothing keeps the choice until the page is closed.
  }
}
