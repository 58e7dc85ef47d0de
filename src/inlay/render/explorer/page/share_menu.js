/**
 * The menu that copies links and commands, and saves pictures.
 */

import { fileName, picturePng, pictureSvg, saveFile } from "./download.js";
import { element } from "./readout.js";
import { encodeView, sourceRequest } from "./state.js";

/** Milliseconds for which a message is shown. */
const SHOWN_FOR = 4000;

/**
 * Connect the menu. `explorer` has `source`, the source of layouts; `state`; `panels`; `visiblePanes()`;
 * `visibleLines()`; and `selection`.
 */
export function connectShareMenu(menu, explorer) {
  const actions = {
    "copy-link": () => copyText(location.href, "link"),
    "copy-command": () => copyText(commandOf(explorer.state), "command"),
    "save-svg": () => saveSvg(explorer),
    "save-png": () => savePng(explorer),
    "save-picture": () => savePicture(explorer),
  };
  const close = () => {
    menu.open = false;
    menu.querySelector("summary").focus();
  };
  for (const [id, action] of Object.entries(actions)) {
    const button = document.getElementById(id);
    button.addEventListener("click", () => {
      close();
      return action();
    });
    button.hidden = !explorer.source.canParse && (id === "copy-command" || id === "save-picture");
  }
  menu.addEventListener("keydown", (event) => event.key === "Escape" && close());
  document.addEventListener("click", (event) => {
    if (!menu.contains(event.target)) menu.open = false;
  });
}

async function copyText(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    announce(`The ${what} is copied.`);
  } catch {
    announce(`This browser does not allow to copy. The ${what} is: ${text}`);
  }
}

function saveSvg({ visiblePanes, visibleLines, panels, selection }) {
  const svg = pictureSvg(visiblePanes(), panels, selection.current, visibleLines());
  saveFile(new Blob([svg], { type: "image/svg+xml" }), fileName(panels, "svg"));
}

async function savePng({ visiblePanes, visibleLines, panels, selection }) {
  const png = await picturePng(visiblePanes(), panels, selection.current, visibleLines());
  saveFile(png, fileName(panels, "png"));
}

async function savePicture({ source, state, panels }) {
  try {
    saveFile(await source.picture(sourceRequest(state), "svg"), fileName(panels.slice(0, 1), "svg"));
  } catch (error) {
    announce(error.message);
  }
}

/** Show a message for a moment, and to screen readers. */
function announce(message) {
  document.getElementById("announcement").textContent = message;
  const toast = element("p", "toast", message);
  toast.setAttribute("aria-hidden", "true");
  document.body.append(toast);
  setTimeout(() => toast.remove(), SHOWN_FOR);
}

/** Return the command that shows a state, for a shell. */
function commandOf(state) {
  const quote = (text) => (/^[\w.:,-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
  const option = (name, text) => (text === null || text === "" ? "" : ` ${name} ${quote(text)}`);
  const type = state.dataType === "f32" ? "" : state.dataType;
  const second = option("--to", state.layout2) + option("--to-dtype", state.layout2 === null ? "" : state.dataType2);
  const views = state.views.map((view) => option("--view", encodeView(view))).join("");
  const options = `${option("--dtype", type)}${option("--names", state.names)}${second}${views}`;
  // A first stride below 0 would be read as an option.
  const separator = state.layout.trim().startsWith("-") ? " --" : "";
  return `inlay explore${options}${separator} ${quote(state.layout)} ${quote(state.dims)}`;
}
