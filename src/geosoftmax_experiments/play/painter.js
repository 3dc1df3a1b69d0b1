// A sheet of 28 × 28 pixels to draw on with pointer, finger or keys. Its value is the ink, as JSON.
const side = 28;
const canvas = element.querySelector("canvas");
const context = canvas.getContext("2d");
let ink = new Array(side * side).fill(0);
let cursor = [14, 14];
let erasing = false;
let timer = null;

const draw = () => {
  context.fillStyle = "white";
  context.fillRect(0, 0, canvas.width, canvas.height);
  const cell = canvas.width / side;
  ink.forEach((value, k) => {
    if (value > 0) {
      const shade = Math.round(255 * (1 - value));
      context.fillStyle = `rgb(${shade},${shade},${shade})`;
      context.fillRect((k % side) * cell, Math.floor(k / side) * cell, cell, cell);
    }
  });
  if (document.activeElement === canvas) {
    context.strokeStyle = "#d55e00";
    context.lineWidth = 2;
    context.strokeRect(cursor[0] * cell, cursor[1] * cell, cell, cell);
  }
};

const read = () => {
  try {
    const found = JSON.parse(props.value);
    if (Array.isArray(found) && found.length === side * side) ink = found.map(Number);
  } catch { /* an empty sheet */ }
  draw();
};

const send = () => {
  clearTimeout(timer);
  timer = setTimeout(() => {
    props.value = JSON.stringify(ink);
    trigger("input");
  }, 30);
};

const dab = (x, y) => {
  for (let dy = -1; dy <= 1; dy++) {
    for (let dx = -1; dx <= 1; dx++) {
      const column = x + dx, row = y + dy;
      if (column < 0 || row < 0 || column >= side || row >= side) continue;
      const amount = dx === 0 && dy === 0 ? 1 : dx * dy === 0 ? 0.6 : 0.25;
      const k = row * side + column;
      ink[k] = erasing ? 0 : Math.max(ink[k], amount);
    }
  }
  draw();
  send();
};

const where = (event) => {
  const box = canvas.getBoundingClientRect();
  return [
    Math.floor(((event.clientX - box.left) / box.width) * side),
    Math.floor(((event.clientY - box.top) / box.height) * side),
  ];
};

let last = null;
canvas.addEventListener("pointerdown", (event) => {
  canvas.setPointerCapture(event.pointerId);
  erasing = event.button === 2 || event.shiftKey;
  last = where(event);
  dab(...last);
});
canvas.addEventListener("pointermove", (event) => {
  if (last === null) return;
  const next = where(event);
  const steps = Math.max(Math.abs(next[0] - last[0]), Math.abs(next[1] - last[1]), 1);
  for (let k = 1; k <= steps; k++) {
    dab(
      Math.round(last[0] + ((next[0] - last[0]) * k) / steps),
      Math.round(last[1] + ((next[1] - last[1]) * k) / steps),
    );
  }
  last = next;
});
for (const name of ["pointerup", "pointercancel"]) {
  canvas.addEventListener(name, () => { last = null; erasing = false; });
}
canvas.addEventListener("contextmenu", (event) => event.preventDefault());
canvas.addEventListener("keydown", (event) => {
  const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  if (event.key in moves) {
    const [dx, dy] = moves[event.key];
    cursor = [
      Math.min(side - 1, Math.max(0, cursor[0] + dx)),
      Math.min(side - 1, Math.max(0, cursor[1] + dy)),
    ];
    draw();
  } else if (event.key === " " || event.key === "Enter") {
    erasing = event.shiftKey;
    dab(...cursor);
    erasing = false;
  } else {
    return;
  }
  event.preventDefault();
});
canvas.addEventListener("focus", draw);
canvas.addEventListener("blur", draw);
watch("value", read);
read();
