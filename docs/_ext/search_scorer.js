/* Order of search results: a name that is spelled as the query comes first, and of several names the shortest. */
var Scorer = {
  score: ([page, title, anchor, description, score]) => {
    const query = (new URLSearchParams(location.search).get("q") || "").trim();
    const parts = title.split(".");
    const isName = parts[0] === "inlay";
    const isExact = isName && (title === query || parts[parts.length - 1] === query);
    return score + (isExact ? 10 : 0) - (isName ? parts.length : 0);
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
