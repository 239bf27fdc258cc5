// Elements of the page. Everything from the service enters as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) node.setAttribute(name, "");
    else if (value !== undefined && value !== null && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export function el(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

/** Set the text only where it changes: a screen reader would read it again. */
export function say(id, text) {
  const words = text ?? "";
  const node = typeof id === "string" ? byId(id) : id;
  if (node.textContent !== words) node.textContent = words;
}

export function show(id, visible) {
  byId(id).hidden = !visible;
}

/** A row of a table: each cell is text, or {text, ...attributes}; the first is the header of the row. */
export function row(...cells) {
  return el("tr", {}, ...cells.map((cell, place) => {
    const { text, ...attributes } = typeof cell === "object" ? cell : { text: cell };
    return place === 0 ? el("th", { scope: "row", ...attributes }, text) : el("td", attributes, text);
  }));
}

/** A cell with a number. */
export const number = (text) => ({ text, class: "n" });

export function fill(id, rows) {
  byId(id).replaceChildren(...rows);
}
