// Graphs: the pointer on a node lights the nodes that it depends on, and the edges to them.
function light(link) {
  const graph = link.closest(".graph");
  const edges = [...graph.querySelectorAll(".edge")];
  const lit = new Set([link.dataset.node]);
  for (const key of lit) for (const edge of edges) if (edge.dataset.to === key) lit.add(edge.dataset.from);
  graph.classList.add("lit");
  for (const edge of edges) edge.classList.toggle("on", lit.has(edge.dataset.to));
  for (const node of graph.querySelectorAll("[data-node]")) node.classList.toggle("on", lit.has(node.dataset.node));
}
document.addEventListener("mouseover", (event) => {
  const link = event.target.closest?.(".graph [data-node]");
  if (link) light(link);
  else for (const graph of document.querySelectorAll(".graph.lit")) graph.classList.remove("lit");
});
