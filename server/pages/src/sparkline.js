// A line of numbers as a small picture.

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 120;
const HEIGHT = 24;

function shape(name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

/** An empty picture; those who do not see it have the numbers beside it. */
export function sparkline() {
  return shape("svg", {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", class: "spark",
    "aria-hidden": "true"});
}

/** Draw a bar for each value from the left, null for none; the highest one fills the height, and the
 * lowest is still seen, 0 too. */
export function draw(picture, values) {
  const most = Math.max(...values, 0) || 1;
  const width = WIDTH / values.length;
  picture.replaceChildren(...values.flatMap((value, at) => {
    if (value === null) return [];
    const height = Math.max(1, HEIGHT * value / most);
    return [shape("rect", {x: at * width, y: HEIGHT - height, width: width * 0.8, height})];
  }));
}
