// What needs a browser and is no part of a playground's state: measuring text, the clipboard, a button's short answer.
import { fontSize } from "./marks.js";

const DONE_MS = 1500;

// A canvas measures text in the fonts that the page really uses, each string once.
export function measurer(root) {
  const ruler = document.createElement("canvas").getContext("2d");
  const style = getComputedStyle(root);
  const family = { ui: style.fontFamily, mono: style.getPropertyValue("--nl-mono") };
  const known = new Map();
  return (string, cls = "") => {
    const [bold, mono] = [/\bb\b/.test(cls), /\bm\b/.test(cls)];
    const font = `${bold ? 600 : 400} ${fontSize(cls)}px ${mono ? family.mono : family.ui}`;
    const key = `${font}|${string}`;
    if (!known.has(key)) {
      ruler.font = font;
      known.set(key, ruler.measureText(string).width);
    }
    return known.get(key);
  };
}

// Where a rect lies, in the words of CSS.
export const placeOf = (element) => Object.fromEntries(["x", "y", "width", "height"].map((name) => [name, `${element.getAttribute(name)}px`]));

// The clipboard needs a secure page; the old way works on a plain http address.
export async function copyText(string, root) {
  try {
    await navigator.clipboard.writeText(string);
    return true;
  } catch {
    const field = document.createElement("textarea");
    field.value = string;
    field.className = "nl-away";
    const focused = document.activeElement;
    root.append(field);
    field.select();
    const copied = document.execCommand("copy");
    field.remove();
    focused?.focus();
    return copied;
  }
}

// A button says what happened, in its old width, then returns to its label.
export function say(button, word, cls) {
  const label = button.querySelector("span");
  button.dataset.label ??= label.textContent;
  button.style.minWidth = `${button.offsetWidth}px`;
  label.textContent = word;
  button.classList.add(cls);
  clearTimeout(Number(button.dataset.timer));
  button.dataset.timer = setTimeout(() => {
    label.textContent = button.dataset.label;
    button.classList.remove("is-done", "is-error");
    button.style.removeProperty("min-width");
  }, DONE_MS);
}
