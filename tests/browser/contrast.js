// Every text of a playground with its contrast against what is painted behind it: [{text, ratio, size}].
// Half-transparent colours are blended; a pattern counts as what lies behind it, because text over one has a halo.
(root) => {
  const parse = (string) => {
    const [r, g, b, a = 1] = (string.match(/[\d.]+/g) ?? [0, 0, 0, 0]).map(Number);
    return { r, g, b, a };
  };
  const over = (top, below) => {
    const mix = (name) => top[name] * top.a + below[name] * (1 - top.a);
    return { r: mix("r"), g: mix("g"), b: mix("b"), a: 1 };
  };
  const channel = (value) => (value / 255 <= 0.03928 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
  const light = ({ r, g, b }) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const ratio = (one, other) => {
    const [high, low] = [light(one), light(other)].sort((a, b) => b - a);
    return (high + 0.05) / (low + 0.05);
  };
  const painted = (element) => {
    const style = getComputedStyle(element);
    if (!(element instanceof SVGElement)) return parse(style.backgroundColor);
    const shape = element.tagName === "rect" || element.tagName === "circle";
    return shape && style.fill.startsWith("rgb") ? parse(style.fill) : parse("rgba(0,0,0,0)");
  };
  // The shapes of each picture with their boxes, read once: a picture has hundreds of texts and shapes.
  const known = new Map();
  const shapesOf = (svg) => {
    if (!svg) return [];
    if (!known.has(svg)) known.set(svg, Array.from(svg.querySelectorAll("rect, circle"), (shape) => ({ shape, box: shape.getBoundingClientRect() })));
    return known.get(svg);
  };
  // All shapes lie behind the text that comes later in the document; the last one wins.
  const behind = (element, x, y) => {
    const there = shapesOf(element.closest("svg")).filter(({ box }) => box.left <= x && x <= box.right && box.top <= y && y <= box.bottom);
    const shapes = there.map(({ shape }) => shape).filter((shape) => shape.compareDocumentPosition(element) & Node.DOCUMENT_POSITION_FOLLOWING);
    const ancestors = [];
    for (let one = element; one; one = one.parentElement) ancestors.push(one);
    const layers = [...shapes.reverse(), ...ancestors].map(painted);
    const paper = layers.findIndex(({ a }) => a === 1);
    const bottom = paper < 0 ? parse("rgb(255,255,255)") : layers[paper];
    return layers.slice(0, paper < 0 ? layers.length : paper).reverse().reduce((below, top) => over(top, below), bottom);
  };
  const found = [];
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const text = walker.currentNode.textContent.trim();
    const style = getComputedStyle(element);
    const range = document.createRange();
    range.selectNodeContents(walker.currentNode);
    const box = range.getBoundingClientRect();
    if (!text || !box.width || style.visibility !== "visible" || element.closest("title, style, script")) continue;
    const background = behind(element, box.left + box.width / 2, box.top + box.height / 2);
    const colour = over(parse(element instanceof SVGElement ? style.fill : style.color), background);
    found.push({ text, ratio: ratio(colour, background), size: parseFloat(style.fontSize) });
  }
  return found;
}
