// Reads the controls of a tab, asks for its answer, and shows it. One question at a time, always the last.
const side = 28;

const ask = async (question) => {
  const reply = await fetch("/answer", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(question),
  });
  return reply.text();
};

// ---------------------------------------------------------------- values of controls

let ink = new Array(side * side).fill(0);

const valueOf = (control) => {
  if (control.id === "sheet") return JSON.stringify(ink);
  if (control.id === "scores") {
    return JSON.stringify([...control.querySelectorAll("input")].map((s) => Number(s.value)));
  }
  const checked = control.querySelector("input:checked");
  return checked ? checked.value : Number(control.querySelector("input").value);
};

const busy = new Set();
const again = new Set();

const show = async (section) => {
  if (busy.has(section)) return void again.add(section);
  busy.add(section);
  const shown = section.querySelector(".shown");
  shown.classList.add("waiting");
  do {
    again.delete(section);
    const values = {};
    for (const control of section.querySelectorAll(".control")) {
      values[control.dataset.name] = valueOf(control);
    }
    try {
      shown.innerHTML = await ask({ tab: section.id, values });
    } catch {
      shown.textContent = "The server has ended. Start it again: geosoftmax play";
    }
  } while (again.has(section));
  shown.classList.remove("waiting");
  busy.delete(section);
};

// A slider and its box move together; what is typed is moved into the range.
for (const control of document.querySelectorAll(".control")) {
  const range = control.querySelector(":scope > input[type=range]");
  const box = control.querySelector(":scope > input[type=number]");
  if (!range) continue;
  range.addEventListener("input", () => { box.value = range.value; });
  box.addEventListener("input", (event) => event.stopPropagation());
  box.addEventListener("change", () => {
    if (box.value !== "" && Number.isFinite(Number(box.value))) range.value = box.value;
    box.value = range.value;
    range.dispatchEvent(new Event("input", { bubbles: true }));
  });
}

const classes = document.querySelector("#ordinal-classes input");
const truth = document.querySelector("#ordinal-true");
const limitClasses = () => {
  document.querySelectorAll("#scores label").forEach((label, k) => {
    label.hidden = k >= Number(classes.value);
  });
  for (const input of truth.querySelectorAll("input")) {
    input.max = classes.value;
    if (Number(input.value) > Number(classes.value)) input.value = classes.value;
  }
};
classes.addEventListener("input", limitClasses);
limitClasses();

for (const slider of document.querySelectorAll("#scores input")) {
  slider.addEventListener("input", () => {
    slider.nextElementSibling.textContent = Number(slider.value).toFixed(1);
  });
}

for (const section of document.querySelectorAll("section")) {
  const form = section.querySelector("form");
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", (event) => {
    if (event.target.id !== "digit") show(section);
  });
}

// ---------------------------------------------------------------- tabs

const tabs = [...document.querySelectorAll("[role=tab]")];
const open = (tab) => {
  for (const other of tabs) {
    const chosen = other === tab;
    other.setAttribute("aria-selected", chosen);
    other.tabIndex = chosen ? 0 : -1;
    document.getElementById(other.getAttribute("aria-controls")).hidden = !chosen;
  }
  show(document.getElementById(tab.getAttribute("aria-controls")));
};
tabs.forEach((tab, k) => {
  tab.addEventListener("click", () => open(tab));
  tab.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = tabs[(k + step + tabs.length) % tabs.length];
    next.focus();
    open(next);
  });
});

// ---------------------------------------------------------------- the sheet

const canvas = document.querySelector("#sheet canvas");
const context = canvas.getContext("2d");
const drawings = document.getElementById("fields");
let cursor = [14, 14];
let erasing = false;

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

const put = (x, y, amount) => {
  if (x < 0 || y < 0 || x >= side || y >= side) return;
  const k = y * side + x;
  ink[k] = erasing ? 0 : Math.max(ink[k], amount);
};

const dab = (x, y) => {
  for (let dy = -1; dy <= 1; dy++) {
    for (let dx = -1; dx <= 1; dx++) {
      put(x + dx, y + dy, dx === 0 && dy === 0 ? 1 : dx * dy === 0 ? 0.6 : 0.25);
    }
  }
  draw();
  show(drawings);
};

const heart = () => {
  ink.fill(0);
  for (let k = 0; k < 400; k++) {
    const t = (k / 400) * 2 * Math.PI;
    const x = 16 * Math.sin(t) ** 3;
    const y = 13 * Math.cos(t) - 5 * Math.cos(2 * t) - 2 * Math.cos(3 * t) - Math.cos(4 * t);
    put(Math.round(13.5 + 0.7 * x), Math.round(12.5 - 0.7 * y), 1);
  }
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

document.getElementById("digit").addEventListener("change", async (event) => {
  if (event.target.value === "heart") heart();
  else ink = JSON.parse(await ask({ digit: event.target.value }));
  draw();
  show(drawings);
});
document.getElementById("clear").addEventListener("click", () => {
  ink.fill(0);
  draw();
  show(drawings);
});

heart();
draw();
show(drawings);
