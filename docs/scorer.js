// The order of search results: guides first, then other pages, and the reports behind the evidence last.
var Scorer = {
  score: ([docname, , , , score]) =>
    score + (docname.startsWith("guides/") ? 5 : 0) - (docname.startsWith("evidence/") ? 100 : 0),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
