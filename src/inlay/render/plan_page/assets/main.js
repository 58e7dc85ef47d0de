"use strict";

/* Pointers, keys and buttons of the page. */

const pointers = new Map();
const searchField = document.getElementById("search");
let dragged = 0;

/* Pointers: one drags the graph, two zoom it. */

function middleOf(points) {
  return { x: sum(points.map((one) => one.x)) / points.length, y: sum(points.map((one) => one.y)) / points.length };
}

function pressPointer(event) {
  if (event.button) return;
  pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
  dragged = 0;
}

function movePointer(event) {
  const before = pointers.get(event.pointerId);
  if (!before) {
    if (event.pointerType !== "touch") hover(event);
    return;
  }
  const old = [...pointers.values()];
  const now = { x: event.clientX, y: event.clientY };
  pointers.set(event.pointerId, now);
  dragged += Math.hypot(now.x - before.x, now.y - before.y);
  if (dragged < 4) return;
  svg.setPointerCapture(event.pointerId);
  svg.classList.add("is-dragged");
  hideCard();
  const [from, to] = [middleOf(old), middleOf([...pointers.values()])];
  pan(to.x - from.x, to.y - from.y);
  if (pointers.size === 2) {
    const spread = ([one, other]) => Math.hypot(one.x - other.x, one.y - other.y) || 1;
    zoom(spread([...pointers.values()]) / spread(old), to);
  }
}

function releasePointer(event) {
  pointers.delete(event.pointerId);
  if (!pointers.size) svg.classList.remove("is-dragged");
}

function clickGraph(event) {
  if (dragged >= 4) return;
  const element = elementAt(event.clientX, event.clientY);
  activate(element);
}

/* Select a node, fold or unfold a block, or select nothing. */
function activate(element) {
  hideCard();
  if (element?.classList.contains("fold")) {
    focusNode(element);
    toggleBlock(Number(element.dataset.segment));
  } else if (element?.classList.contains("node")) {
    focusNode(element);
    hideCard();
    selectMarks(numbersOf(element, "marks"));
  } else if (element) {
    const wire = graph.wires[numbersOf(element, "wires")[0]];
    selectMarks(numbersOf(nodeOf(wire[0]), "marks"));
  } else selectMarks([]);
}

function turnWheel(event) {
  event.preventDefault();
  hideCard();
  const unit = event.deltaMode === 1 ? 16 : 1;
  if (event.ctrlKey || event.metaKey) zoom(Math.exp(-event.deltaY * unit * 0.005), { x: event.clientX, y: event.clientY });
  else if (event.shiftKey && !event.deltaX) pan(-event.deltaY * unit, 0);
  else pan(-event.deltaX * unit, -event.deltaY * unit);
}

/* Keys */

function clearAll() {
  hideCard();
  searchField.value = "";
  search("");
  selectMarks([]);
}

function pressGraphKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || !focused) return;
  const isHandled = moveFocus(event.key);
  if (!isHandled && (event.key === "Enter" || event.key === " ")) activate(focused);
  else if (!isHandled && event.key === "f" && graph.blocks[segmentOf(focused)]) toggleBlock(segmentOf(focused));
  else if (!isHandled) return;
  event.preventDefault();
}

const KEYS = {
  "+": () => zoom(1.25),
  "=": () => zoom(1.25),
  "-": () => zoom(0.8),
  0: () => fit(),
  "/": () => searchField.focus(),
  Escape: clearAll,
};

function pressKey(event) {
  const isTyped = event.target.closest("input") !== null;
  if (event.ctrlKey || event.metaKey || event.altKey || (isTyped && event.key !== "Escape")) return;
  if (!(event.key in KEYS)) return;
  KEYS[event.key]();
  event.preventDefault();
}

function showFocus(event) {
  const element = event.target.closest(".node");
  if (!element || !element.matches(":focus-visible")) return;
  const box = element.getBoundingClientRect();
  showCard(describeMarks(numbersOf(element, "marks"), true), box.right, box.top);
}

/* Buttons */

function setAll(fold) {
  const blocks = graph.blocks.flatMap((isBlock, number) => (isBlock ? [number] : []));
  foldBlocks(blocks, fold);
  announce(`${blocks.length} ${blocks.length === 1 ? "block" : "blocks"} ${fold ? "folded" : "unfolded"}`);
}

function showTimes(kind) {
  document.documentElement.classList.toggle("shows-measured", kind === "measured");
  document.documentElement.classList.toggle("shows-predicted", kind === "predicted");
}

function hoverTimeLine(event) {
  const part = event.target.closest("rect");
  if (!part) return;
  const mark = graph.marks.findIndex((one) => one.step === Number(part.dataset.step));
  showCard(describeMarks([mark], true), event.clientX, event.clientY);
}

function listen() {
  svg.addEventListener("pointerdown", pressPointer);
  svg.addEventListener("pointermove", movePointer);
  svg.addEventListener("pointerup", releasePointer);
  svg.addEventListener("pointercancel", releasePointer);
  svg.addEventListener("pointerleave", hideCard);
  svg.addEventListener("click", clickGraph);
  svg.addEventListener("wheel", turnWheel, { passive: false });
  svg.addEventListener("keydown", pressGraphKey);
  svg.addEventListener("focusin", showFocus);
  svg.addEventListener("focusout", hideCard);
  document.addEventListener("keydown", pressKey);
  searchField.addEventListener("input", () => search(searchField.value));
  searchField.addEventListener("keydown", (event) => {
    if (event.key === "Enter") nextMatch(event.shiftKey ? -1 : 1);
  });
  const buttons = {
    "zoom-in": () => zoom(1.25),
    "zoom-out": () => zoom(0.8),
    fit: () => fit(),
    "fold-all": () => setAll(true),
    "unfold-all": () => setAll(false),
  };
  for (const [id, act] of Object.entries(buttons)) document.getElementById(id).addEventListener("click", act);
  for (const choice of document.querySelectorAll("#times input")) {
    choice.addEventListener("change", () => showTimes(choice.value));
  }
  const line = document.getElementById("time-line");
  line.addEventListener("pointermove", hoverTimeLine);
  line.addEventListener("pointerleave", hideCard);
  line.addEventListener("click", (event) => {
    const part = event.target.closest("rect");
    if (part) selectSteps([Number(part.dataset.step)]);
  });
}

/* Show the mark that the address names, if it names one. */
function openAddress() {
  const mark = Number(/^#mark-(\d+)$/.exec(location.hash)?.[1] ?? NaN);
  if (!(mark < graph.marks.length)) return;
  selectMarks(numbersOf(nodeOf(mark), "marks"));
  reveal(nodeOf(mark), true);
}

document.documentElement.classList.add("has-script");
svg.removeAttribute("viewBox");
showTab("steps");
if (!graph.blocks.includes(true)) document.querySelector(".group.blocks").hidden = true;
focused = shownNodes()[0] ?? null;
focused?.setAttribute("tabindex", "0");
listen();
fit(true);
openAddress();
window.addEventListener("hashchange", openAddress);
