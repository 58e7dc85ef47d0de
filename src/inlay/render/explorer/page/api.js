/**
 * Where layouts come from: the server of `inlay explore`, or the JSON inside a page that was written to a file.
 */

/** Return the source of layouts for this page. */
export function connect() {
  const data = JSON.parse(document.getElementById("explorer-data").textContent);
  return data === null ? new LayoutServer() : new SavedLayouts(data);
}

class LayoutServer {
  canParse = true;

  /** Return `{layout}` or `{error}` for a request; throw if the server has ended or the call is aborted. */
  layout(request, signal) {
    return post("api/layout", request, signal);
  }

  /** Return `{src, dst, kernel, ...}` or `{error}` for two requests. */
  reorder(src, dst, signal) {
    return post("api/reorder", { src, dst }, signal);
  }

  /** Return the picture that `inlay show` draws, as a blob; throw with the words of the server if there is none. */
  async picture(request, format) {
    const response = await fetch("api/picture", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ request, format }),
    });
    if (!response.headers.get("Content-Type")?.startsWith("image/")) {
      throw new Error((await response.json()).error.message);
    }
    return response.blob();
  }

  /** Return the data types and tags that fields offer; empty lists if the server has none. */
  async choices() {
    try {
      const response = await fetch("api/choices");
      return response.ok ? await response.json() : { data_types: [], tags: [] };
    } catch {
      return { data_types: [], tags: [] };
    }
  }
}

async function post(path, body, signal) {
  const response = await fetch(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
    signal,
  });
  const answer = await response.json();
  if (!response.ok && !answer.error) throw new Error(`${path} has the status ${response.status}`);
  return answer;
}

class SavedLayouts {
  canParse = false;

  /** `data` is the JSON that `inlay explore --out` embeds: panels with request and layout, and a reorder or null. */
  constructor(data) {
    this.panels = data.panels;
    this.saved = data.reorder ?? null;
  }

  /** Return the layout that was saved for a request, or the first one. */
  async layout(request) {
    return { layout: (this._find(request) ?? this.panels[0]).layout };
  }

  /** Return two saved layouts, and what is known about the reorder between them. */
  async reorder(src, dst) {
    const [source, destination] = [this._find(src) ?? this.panels[0], this._find(dst) ?? this.panels[1]];
    const isFirstPair = source === this.panels[0] && destination === this.panels[1];
    return { ...(isFirstPair ? this.saved : {}), src: source.layout, dst: destination.layout };
  }

  _find(request) {
    return this.panels.find(
      (panel) =>
        panel.request.layout === request.layout &&
        [panel.request.dims, panel.layout.dims.join("x")].includes(request.dims) &&
        (panel.request.data_type ?? "f32") === request.data_type,
    );
  }

  async choices() {
    return { data_types: [], tags: [] };
  }
}
