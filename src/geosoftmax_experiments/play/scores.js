// One slider for each class. The value is the list of scores, as JSON.
const sliders = [...element.querySelectorAll("input")];
let timer = null;

const read = () => {
  let scores = [];
  try { scores = JSON.parse(props.value); } catch { /* keep what is there */ }
  sliders.forEach((slider, k) => {
    if (Number.isFinite(scores[k])) slider.value = scores[k];
    slider.nextElementSibling.textContent = Number(slider.value).toFixed(1);
  });
};

sliders.forEach((slider) => {
  slider.addEventListener("input", () => {
    slider.nextElementSibling.textContent = Number(slider.value).toFixed(1);
    clearTimeout(timer);
    timer = setTimeout(() => {
      props.value = JSON.stringify(sliders.map((s) => Number(s.value)));
      trigger("input");
    }, 20);
  });
});
watch("value", read);
read();
