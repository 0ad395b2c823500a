// What scrolls by itself can be reached and moved by the keyboard; headings of the side bar say their level.
for (const part of document.querySelectorAll("pre, .table-wrapper")) part.tabIndex = 0;
for (const caption of document.querySelectorAll("p.caption[role=heading]")) caption.setAttribute("aria-level", "2");
