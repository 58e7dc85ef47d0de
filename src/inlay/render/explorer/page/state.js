/**
 * The state of the page that a URL keeps in its fragment, such as `#l=nChw8c&d=2x17x5x4&at=1,16,4,3`.
 *
 *     l, d, t, n    layout, dims, data type and names of the axes, as typed
 *     v             a view, once for each: reshape:2x17x20, permute:0,2,3,1, submemory:1x8x5x4@0,8,0,0
 *     l2, t2        layout and data type of the second layout
 *     at            the selected coordinate
 *     show          what the cells show: index, offset or coordinate
 *     mark          groups of memory and jump marks that are shown, joined by commas
 */

const DEFAULT_STATE = Object.freeze({
  layout: "nChw8c",
  dims: "2x17x5x4",
  dataType: "f32",
  names: "",
  views: [],
  layout2: null,
  dataType2: "",
  at: null,
  labels: "index",
  marks: [],
});

const TEXT_KEYS = { l: "layout", d: "dims", t: "dataType", n: "names", l2: "layout2", t2: "dataType2", show: "labels" };

/** Return the fragment of a URL, without `#`, for a state. */
export function encodeState(state) {
  const pairs = [];
  for (const [key, property] of Object.entries(TEXT_KEYS)) {
    const value = state[property];
    const isRequired = key === "l" || key === "d";
    if (value !== null && (isRequired || value !== DEFAULT_STATE[property])) pairs.push([key, value]);
  }
  for (const view of state.views) pairs.push(["v", encodeView(view)]);
  if (state.at !== null) pairs.push(["at", state.at.join(",")]);
  if (state.marks.length > 0) pairs.push(["mark", state.marks.join(",")]);
  return pairs.map(([key, value]) => `${key}=${encodeText(value)}`).join("&");
}

/** Return the state that a fragment describes; what it leaves out has the default, and unknown keys are ignored. */
export function parseState(fragment) {
  const state = { ...DEFAULT_STATE, views: [], marks: [] };
  for (const part of fragment.replace(/^#/, "").split("&")) {
    const [key, value] = [part.split("=", 1)[0], decodeText(part.slice(part.indexOf("=") + 1))];
    if (key in TEXT_KEYS) state[TEXT_KEYS[key]] = value;
    else if (key === "v") state.views.push(parseView(value));
    else if (key === "at" && /^\d+(,\d+)*$/.test(value)) state.at = value.split(",").map(Number);
    else if (key === "mark" && value !== "") state.marks = value.split(",");
  }
  if (!["index", "offset", "coordinate"].includes(state.labels)) state.labels = DEFAULT_STATE.labels;
  return state;
}

/** Return a view as text, such as `reshape:2x17x20`. */
export function encodeView(view) {
  if (view.op === "permute") return `permute:${view.axes}`;
  if (view.op === "submemory") return `submemory:${view.dims}@${view.offsets}`;
  return `${view.digits ? "digits" : "reshape"}:${view.dims}`;
}

function parseView(text) {
  const op = text.split(":", 1)[0];
  const value = text.slice(op.length + 1);
  if (op === "permute") return { op, axes: value };
  if (op === "submemory") return { op, dims: value.split("@", 1)[0], offsets: value.split("@")[1] ?? "" };
  return op === "digits" ? { op: "reshape", dims: value, digits: true } : { op: "reshape", dims: value };
}

/** Return a text for a fragment: readable characters stay as they are. */
function encodeText(text) {
  const kept = { "%2C": ",", "%3A": ":", "%40": "@", "%2F": "/", "%3E": ">", "%20": "+" };
  return encodeURIComponent(text).replace(/%(2C|3A|40|2F|3E|20)/g, (code) => kept[code]);
}

function decodeText(text) {
  try {
    return decodeURIComponent(text.replaceAll("+", " "));
  } catch {
    return text;
  }
}

/** Return the request of the first layout. */
export function sourceRequest(state) {
  return {
    layout: state.layout,
    dims: state.dims,
    data_type: state.dataType,
    names: state.names.trim() || null,
    views: state.views,
  };
}

/** Return the request of the second layout, for a first layout that the server has described. */
export function destinationRequest(state, source) {
  return {
    layout: state.layout2,
    dims: source.dims.join("x"),
    data_type: state.dataType2 || state.dataType,
    names: source.names,
    views: [],
  };
}
