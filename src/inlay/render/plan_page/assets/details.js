"use strict";

/* The data of the page, and what is to be said of a step, a view or a wire. */

const { plan, graph } = JSON.parse(document.getElementById("data").textContent);

/* Make an element of HTML with attributes and children, which are elements or texts. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.filter((child) => child !== null && child !== ""));
  return element;
}

const msText = (ms) => `${ms.toFixed(3)} ms`;
const shareText = (share) => `${(100 * share).toFixed(1)} %`;
const sum = (values) => values.reduce((total, value) => total + value, 0);

function bytesText(count) {
  if (count < 1000) return count === 1 ? "1 byte" : `${count} bytes`;
  const units = ["kB", "MB", "GB", "TB", "PB", "EB"];
  let size = count / 1000;
  let unit = 0;
  while (size >= 1000 && unit + 1 < units.length) {
    size /= 1000;
    unit += 1;
  }
  return `${size.toFixed(1)} ${units[unit]}`;
}

/* The steps of marks, without marks that are none. */
function stepsOf(marks) {
  return marks.map((mark) => graph.marks[mark].step).filter((step) => step !== null);
}

function dimsText(buffer) {
  return buffer.dims.map((n) => n ?? "?").join("x") || "scalar";
}

/* The descriptor of a buffer as text: oneDNN's text and dims, or type and dims of an array without a descriptor. */
function descriptorText(buffer) {
  return `${buffer.descriptor ?? `${buffer.data_type}, row-major`} ${dimsText(buffer)}`;
}

/* A list of terms and descriptions; empty descriptions are left out. */
function makeList(entries, className) {
  const list = make("dl", { class: className });
  for (const [term, text] of entries) {
    if (text) list.append(make("dt", {}, term), make("dd", {}, text));
  }
  return list;
}

/* The entries on times: of one step, or the sums of several. */
function timeEntries(steps) {
  const records = steps.map((step) => plan.steps[step]);
  const describe = (values) => {
    const total = sum(values.map((one) => one.ms));
    const each = values.map((one) => one.ms);
    const [least, most] = [Math.min(...each).toFixed(3), Math.max(...each).toFixed(3)];
    const range = steps.length > 1 ? `, each ${least === most ? least : `${least} to ${most}`}` : "";
    return `${msText(total)}, ${shareText(sum(values.map((one) => one.share)))}${range}`;
  };
  const measured = records.map((one) => one.measured).filter((one) => one !== null);
  const spread =
    measured.length === 1 ? `; quartiles ${measured[0].low.toFixed(3)} and ${measured[0].high.toFixed(3)}` : "";
  const sources = [...new Set(records.map((one) => one.source))].join(", ");
  return [
    ["predicted", `${describe(records)} (${sources})`],
    ["measured", measured.length ? describe(measured) + spread : ""],
  ];
}

function rateText(step) {
  const ms = (step.measured ?? step).ms;
  return ms > 0 ? `, ${(step.nbytes / ms / 1e6).toFixed(1)} GB/s` : "";
}

function withoutText(step) {
  if (!step.has_alternative) return "";
  if (step.without === null) return "every plan has this reorder";
  if (step.without < 0.0005) return "the best plan without it takes no longer, but has other reorders";
  return `the best plan without it takes ${msText(step.without)} more`;
}

/* The table of the tensors that a step reads and writes. */
function argumentTable(step) {
  const rows = [];
  for (const [kind, names] of [["reads", step.reads], ["writes", step.writes]]) {
    for (const [argument, name] of Object.entries(names)) {
      const buffer = plan.buffers[name];
      rows.push(
        make(
          "tr",
          {},
          make("th", { scope: "row" }, argument),
          make("td", {}, kind),
          make("td", {}, make("strong", {}, buffer.format), ` ${buffer.tensor}`),
        ),
        make("tr", { class: "descriptor" }, make("td", { colspan: "3" }, make("code", {}, descriptorText(buffer)))),
      );
    }
  }
  return make("table", { class: "arguments" }, make("tbody", {}, ...rows));
}

/* The table of the steps that a folded node stands for. */
function occurrenceTable(steps) {
  const isMeasured = plan.measured !== null;
  const times = isMeasured ? ["ms, predicted", "ms, measured"] : ["ms"];
  const heads = ["", "step", ...times, "result", "kernel"];
  const rows = steps.map((number, i) => {
    const step = plan.steps[number];
    const result = plan.buffers[Object.values(step.writes)[0]];
    return make(
      "tr",
      {},
      make("td", { class: "number" }, String(i + 1)),
      make("td", {}, step.label),
      make("td", { class: "number" }, step.ms.toFixed(3)),
      ...(isMeasured ? [make("td", { class: "number" }, step.measured.ms.toFixed(3))] : []),
      make("td", {}, result ? dimsText(result) : ""),
      make("td", {}, (step.measured ?? step).impl),
    );
  });
  const column = (text) => make("th", { scope: "col", class: times.includes(text) ? "number" : "" }, text);
  const head = make("tr", {}, ...heads.map((text) => (text ? column(text) : make("td"))));
  return make("table", { class: "occurrences" }, make("thead", {}, head), make("tbody", {}, ...rows));
}

/* All that is known of marks that one node stands for; a `short` text is for the card beside the pointer. */
function describeMarks(marks, short = false) {
  const steps = stepsOf(marks);
  const content = document.createDocumentFragment();
  const first = graph.marks[marks[0]];
  if (!steps.length) {
    content.append(make("h2", {}, first.title), make("pre", {}, first.about));
    return content;
  }
  const step = plan.steps[steps[0]];
  const count = steps.length > 1 ? `${steps.length} × ` : "";
  const title = step.kind === "reorder" ? `reorder ${step.formats.replace("->", "→")}` : step.title;
  content.append(make("h2", {}, count + title));
  const impls = [...new Set(steps.map((one) => (plan.steps[one].measured ?? plan.steps[one]).impl))];
  const bytes = sum(steps.map((one) => plan.steps[one].nbytes));
  content.append(
    makeList(
      [
        ["step", steps.length > 1 ? `${step.label} and ${steps.length - 1} more` : step.label],
        ["operations", steps.length === 1 ? step.ops.join(" + ") : ""],
        ["kernel", impls.filter((impl) => impl).join(", ")],
        ...timeEntries(steps),
        ["bytes", bytesText(bytes) + (steps.length === 1 ? rateText(step) : "")],
        ["why", step.why],
        ["without it", withoutText(step)],
      ],
      "facts",
    ),
  );
  if (steps.length > 1) content.append(make("h3", {}, "Tensors of the first one"));
  content.append(argumentTable(step));
  if (steps.length > 1 && !short) content.append(make("h3", {}, "All of them"), occurrenceTable(steps));
  return content;
}

/* All that is known of a wire: the tensors that flow there. */
function describeWires(wires) {
  const names = [...new Set(wires.map((wire) => graph.wires[wire][2]))];
  const content = document.createDocumentFragment();
  content.append(make("h2", {}, `${plan.buffers[names[0]].format}${names.length > 1 ? `, ${names.length} tensors` : ""}`));
  for (const name of names.slice(0, 4)) {
    const buffer = plan.buffers[name];
    const size = buffer.size === null ? "" : `, ${bytesText(buffer.size)}`;
    content.append(make("p", {}, make("strong", {}, buffer.tensor), size), make("code", {}, descriptorText(buffer)));
  }
  return content;
}

/* The words of a mark among which a search looks. */
const searchTexts = graph.marks.map((mark) => {
  if (mark.step === null) return `${mark.title} ${mark.about}`.toLowerCase();
  const step = plan.steps[mark.step];
  const buffers = [...Object.values(step.reads), ...Object.values(step.writes)].map((name) => plan.buffers[name]);
  const tensors = buffers.map((buffer) => `${buffer.tensor} ${buffer.format} ${buffer.descriptor ?? ""}`);
  const impl = `${step.impl} ${step.measured ? step.measured.impl : ""}`;
  return [step.title, step.kind, step.label, step.name, ...step.ops, impl, ...tensors].join(" ").toLowerCase();
});
