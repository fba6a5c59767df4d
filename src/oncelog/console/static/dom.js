// Nodes from descriptions. What is there already is kept and changed, so that a table which is told anew every second
// keeps the reader's focus, selection and place. Text goes into text nodes only; markup in it stays text.

const SVG = "http://www.w3.org/2000/svg";
const about = new WeakMap(); // node -> { key, attributes, listeners }

export function h(tag, attributes, ...children) {
  const { key, ...rest } = attributes ?? {};
  return { tag, key, attributes: rest, children: flat(children) };
}

function flat(children) {
  return children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false);
}

export function patch(parent, ...children) {
  patchChildren(parent, flat(children));
}

function patchChildren(parent, wanted) {
  const keys = new Set(wanted.map((each) => each.key));
  const byKey = new Map();
  for (const node of [...parent.childNodes]) {
    const key = about.get(node)?.key;
    if (key === undefined) continue;
    if (keys.has(key)) byKey.set(key, node);
    else node.remove(); // first, so that those that stay need not be moved: a node that is moved loses the focus
  }
  let at = parent.firstChild;
  for (const each of wanted) {
    let node = found(each, at, byKey);
    if (node === null) node = created(each, parent);
    if (node === at) at = at.nextSibling;
    else parent.insertBefore(node, at);
    changed(node, each);
  }
  while (at !== null) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function found(wanted, at, byKey) {
  if (wanted.tag === undefined) return at?.nodeType === Node.TEXT_NODE ? at : null;
  if (wanted.key !== undefined) return byKey.get(wanted.key) ?? null;
  const fits = at?.nodeType === Node.ELEMENT_NODE && at.localName === wanted.tag && about.get(at)?.key === undefined;
  return fits ? at : null;
}

function created(wanted, parent) {
  if (wanted.tag === undefined) return document.createTextNode("");
  const isDrawing = wanted.tag === "svg" || parent.namespaceURI === SVG;
  const node = isDrawing ? document.createElementNS(SVG, wanted.tag) : document.createElement(wanted.tag);
  about.set(node, { key: wanted.key, attributes: {}, listeners: {} });
  return node;
}

function changed(node, wanted) {
  if (wanted.tag === undefined) {
    const text = String(wanted);
    if (node.nodeValue !== text) node.nodeValue = text;
    return;
  }
  const known = about.get(node) ?? { attributes: {}, listeners: {} };
  about.set(node, known);
  for (const name of Object.keys(known.attributes)) {
    if (!(name in wanted.attributes)) setAttribute(node, known, name, null);
  }
  for (const [name, value] of Object.entries(wanted.attributes)) setAttribute(node, known, name, value);
  patchChildren(node, wanted.children);
}

function setAttribute(node, known, name, value) {
  if (name.startsWith("on")) {
    const event = name.slice(2);
    if (!(event in known.listeners)) node.addEventListener(event, (happened) => known.listeners[event]?.(happened));
    known.listeners[event] = value;
    return;
  }
  if (known.attributes[name] === value) return;
  known.attributes[name] = value;
  if (name === "value") {
    if (document.activeElement !== node) node.value = value ?? "";
  } else if (value === null || value === undefined || value === false) node.removeAttribute(name);
  else node.setAttribute(name, value === true ? "" : String(value));
}
