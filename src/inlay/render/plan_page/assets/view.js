"use strict";

/* The graph: its camera, its blocks folded and unfolded, what is hovered, focused, found and selected. */

const svg = document.getElementById("graph");
const camera = document.getElementById("camera");
const card = document.getElementById("card");
const segments = [...camera.children];
const isFolded = graph.blocks.slice();
const view = { x: 0, y: 0, scale: 1 };
const SCALES = { least: 0.05, most: 3, readable: 0.55 };
const MARGIN = 24;
const NEAR = [0, 2, 4].flatMap((far) => [[far, 0], [-far, 0], [0, far], [0, -far]]);
let focused = null;
let selected = [];
let matches = null;

const numbersOf = (element, name) => element.dataset[name].split(" ").map(Number);

function announce(text) {
  document.getElementById("announcement").textContent = text;
}

/* Forms and nodes */

function shownForm(segment) {
  return segment.querySelector(segment.classList.contains("is-unfolded") ? ".unfolded" : ".folded");
}

function shownNodes() {
  return segments.flatMap((segment) => [...shownForm(segment).querySelectorAll(".node, .fold")]);
}

/* The element that shows a mark now. */
function nodeOf(mark) {
  const { segment, node } = graph.marks[mark];
  const isDrawnOnce = !graph.blocks[segment] || isFolded[segment];
  return document.getElementById(isDrawnOnce ? `f${node}` : `u${mark}`);
}

function segmentOf(element) {
  return segments.indexOf(element.closest(".segment"));
}

/* Camera */

function moveCamera() {
  camera.setAttribute("transform", `translate(${view.x} ${view.y}) scale(${view.scale})`);
}

function extent() {
  const forms = segments.map((segment) => shownForm(segment).dataset);
  return {
    left: Math.min(...forms.map((form) => Number(form.left))),
    right: Math.max(...forms.map((form) => Number(form.right))),
    height: sum(forms.map((form) => Number(form.height))),
  };
}

/* Show all of the graph, or its beginning in a scale that can be read. */
function fit(isReadable = false) {
  const { left, right, height } = extent();
  const room = svg.getBoundingClientRect();
  const across = (room.width - 2 * MARGIN) / (right - left);
  const down = (room.height - 2 * MARGIN) / height;
  const readable = Math.min(1, Math.max(across, SCALES.readable));
  view.scale = Math.min(1.2, Math.max(Math.min(across, down), isReadable ? readable : SCALES.least));
  view.x = room.width / 2 - (view.scale * (left + right)) / 2;
  view.y = Math.max(MARGIN, (room.height - view.scale * height) / 2);
  moveCamera();
}

/* Change the scale; a point of the window, by default the middle of the graph's, stays where it is. */
function zoom(factor, point = null) {
  const room = svg.getBoundingClientRect();
  const x = point ? point.x - room.left : room.width / 2;
  const y = point ? point.y - room.top : room.height / 2;
  const scale = Math.min(SCALES.most, Math.max(SCALES.least, view.scale * factor));
  view.x = x - ((x - view.x) * scale) / view.scale;
  view.y = y - ((y - view.y) * scale) / view.scale;
  view.scale = scale;
  moveCamera();
}

function pan(dx, dy) {
  view.x += dx;
  view.y += dy;
  moveCamera();
}

/* Move the graph as far as needed so that an element is within its window; to the middle if `isCentered`. */
function reveal(element, isCentered = false) {
  if (view.scale < SCALES.readable) zoom(SCALES.readable / view.scale);
  const room = svg.getBoundingClientRect();
  const box = element.getBoundingClientRect();
  if (isCentered) {
    pan((room.left + room.right - box.left - box.right) / 2, (room.top + room.bottom - box.top - box.bottom) / 2);
    return;
  }
  const distance = (low, high, least, most) => (low < least ? least - low : high > most ? most - high : 0);
  pan(
    distance(box.left, box.right, room.left + MARGIN, room.right - MARGIN),
    distance(box.top, box.bottom, room.top + MARGIN, room.bottom - MARGIN),
  );
}

/* Blocks */

function placeSegments() {
  let y = 0;
  for (const segment of segments) {
    segment.setAttribute("transform", `translate(0 ${y})`);
    y += Number(shownForm(segment).dataset.height);
  }
}

/* Fold or unfold blocks; what is at the top of the first of them stays where it is. */
function foldBlocks(numbers, fold) {
  const changed = numbers.filter((number) => graph.blocks[number] && isFolded[number] !== fold);
  if (!changed.length) return;
  const anchor = segments[changed[0]];
  const before = anchor.getBoundingClientRect();
  const top = shownForm(anchor).querySelector(".fold").getBoundingClientRect().top;
  for (const number of changed) {
    isFolded[number] = fold;
    segments[number].classList.toggle("is-unfolded", !fold);
  }
  placeSegments();
  if (before.height) pan(0, top - shownForm(anchor).querySelector(".fold").getBoundingClientRect().top);
  hideCard();
  showSelection();
  showMatches();
}

function toggleBlock(number) {
  const hadFocus = focused !== null && segmentOf(focused) === number;
  const mark = hadFocus && focused.dataset.marks ? numbersOf(focused, "marks")[0] : null;
  foldBlocks([number], !isFolded[number]);
  const next = mark === null ? shownForm(segments[number]).querySelector(".fold") : nodeOf(mark);
  focusNode(next);
  announce(`block ${isFolded[number] ? "folded" : "unfolded"}`);
}

/* Selection and search */

/* Mark the wires that lead to or from these marks, with a class. */
function lightWires(marks, className) {
  const those = new Set(marks);
  const touches = ([source, targets]) => those.has(source) || targets.some((target) => those.has(target));
  const lit = new Set(graph.wires.flatMap((wire, i) => (those.size && touches(wire) ? [i] : [])));
  for (const path of camera.querySelectorAll(".wire")) {
    path.classList.toggle(className, lit.size > 0 && numbersOf(path, "wires").some((wire) => lit.has(wire)));
  }
}

function showSelection() {
  for (const element of camera.querySelectorAll(".selected")) element.classList.remove("selected");
  for (const mark of selected) nodeOf(mark).classList.add("selected");
  lightWires(selected, "lit");
}

function selectMarks(marks) {
  selected = marks;
  showSelection();
  showDetails(marks);
  if (marks.length) {
    history.replaceState(null, "", `#mark-${marks[0]}`);
    announce(nodeOf(marks[0]).getAttribute("aria-label"));
  }
}

function showMatches() {
  const found = new Set(matches ?? []);
  for (const element of camera.querySelectorAll(".node")) {
    element.classList.toggle("match", numbersOf(element, "marks").some((mark) => found.has(mark)));
  }
  svg.classList.toggle("is-searching", matches !== null);
}

/* Mark the steps in which all words of a text occur. */
function search(text) {
  const words = text.toLowerCase().split(/\s+/).filter((word) => word);
  const marks = graph.marks.map((_, mark) => mark);
  matches = words.length ? marks.filter((mark) => words.every((word) => searchTexts[mark].includes(word))) : null;
  showMatches();
  const count = stepsOf(matches ?? []).length;
  const others = (matches ?? []).length - count;
  const rest = others ? `, ${others} other` : "";
  document.getElementById("found").textContent = matches === null ? "" : `${count} of ${plan.steps.length} steps${rest}`;
}

/* Lead to the next match after the selected one, or to the one before; folded steps count once. */
function nextMatch(step) {
  const nodes = [...new Set((matches ?? []).map(nodeOf))];
  if (!nodes.length) return;
  const current = selected.length ? nodes.indexOf(nodeOf(selected[0])) : -1;
  const next = current < 0 ? (step > 0 ? 0 : nodes.length - 1) : (current + step + nodes.length) % nodes.length;
  selectMarks(numbersOf(nodes[next], "marks"));
  reveal(nodes[next], true);
}

/* Focus */

function focusNode(element, isCentered = false) {
  if (!element) return;
  if (focused) focused.setAttribute("tabindex", "-1");
  focused = element;
  element.setAttribute("tabindex", "0");
  element.focus({ preventScroll: true });
  reveal(element, isCentered);
}

/* The nodes that lead to an element, or to which it leads, as they are shown. */
function neighbors(element, isForward) {
  const own = new Set(numbersOf(element, "marks"));
  const found = new Set();
  for (const [source, targets] of graph.wires) {
    if (isForward && own.has(source)) targets.forEach((target) => found.add(nodeOf(target)));
    if (!isForward && targets.some((target) => own.has(target))) found.add(nodeOf(source));
  }
  found.delete(element);
  return [...found];
}

/* Move the focus by a key; false if the key does not. */
function moveFocus(key) {
  const nodes = shownNodes();
  const place = nodes.indexOf(focused);
  const inOrder = { ArrowUp: place - 1, ArrowDown: place + 1, Home: 0, End: nodes.length - 1 };
  if (key in inOrder) focusNode(nodes[Math.min(Math.max(inOrder[key], 0), nodes.length - 1)]);
  else if (key === "ArrowLeft" || key === "ArrowRight") {
    if (focused.dataset.marks) focusNode(neighbors(focused, key === "ArrowRight")[0]);
  } else return false;
  return true;
}

/* The card beside the pointer or the focus */

function hideCard() {
  card.hidden = true;
}

function showCard(content, x, y) {
  card.replaceChildren(content);
  card.hidden = false;
  const { width, height } = card.getBoundingClientRect();
  const left = x + 16 + width > window.innerWidth ? x - 16 - width : x + 16;
  const top = y + 16 + height > window.innerHeight ? window.innerHeight - height - 8 : y + 16;
  card.style.left = `${Math.max(8, left)}px`;
  card.style.top = `${Math.max(8, top)}px`;
}

/* The node or wire at a point; a wire is found from a few pixels beside it. */
function elementAt(x, y) {
  for (const [dx, dy] of NEAR) {
    const element = document.elementFromPoint(x + dx, y + dy)?.closest("#graph .node, #graph .wire, #graph .fold");
    if (element) return element;
  }
  return null;
}

function hover(event) {
  const element = elementAt(event.clientX, event.clientY);
  for (const other of camera.querySelectorAll(".wire.hovered")) other.classList.remove("hovered");
  if (!element || element.classList.contains("fold")) {
    hideCard();
    return;
  }
  const isWire = element.classList.contains("wire");
  if (isWire) element.classList.add("hovered");
  const content = isWire ? describeWires(numbersOf(element, "wires")) : describeMarks(numbersOf(element, "marks"), true);
  showCard(content, event.clientX, event.clientY);
}
