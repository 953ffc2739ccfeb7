//! The page.

use std::fmt::Write as _;

use super::svg::{STYLE, xml};
use super::{Overview, PictureKind};
use crate::check::Severity;

const LOOK: &str = "\
body{background:var(--ground);color:var(--ink);font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:62.5rem;padding:0 1rem}\
h1{font-size:1.4rem;overflow-wrap:anywhere}h2{font-size:1.1rem;margin-top:2rem}\
table{border-collapse:collapse;width:100%}th,td{border-bottom:1px solid var(--edge);padding:.25rem .5rem;text-align:left;vertical-align:top;\
overflow-wrap:anywhere}th{color:var(--faint);font-weight:normal;width:10rem}svg{max-width:100%;height:auto}\
.tree,.tree ul{list-style:none;padding-left:1.2rem}.tree span,.note{color:var(--faint)}.error{color:var(--bad)}";

impl Overview {
    /// Returns the page, one self-contained HTML file.
    #[must_use]
    pub fn html(&self) -> String {
        let mut page = String::new();
        let name = xml(&self.name);
        let _ = writeln!(
            page,
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n\
             <title>{name}</title>\n<style>{STYLE}{LOOK}</style>\n</head>\n<body>\n<h1>{name}</h1>\n<table>"
        );
        for (fact, words) in &self.facts {
            let _ = writeln!(page, "<tr><th>{fact}</th><td>{}</td></tr>", xml(words));
        }
        page.push_str("</table>\n");
        for note in &self.notes {
            let _ = writeln!(page, "<p class=\"error\">{}</p>", xml(note));
        }
        let _ = writeln!(page, "<h2>Disk map</h2>\n{}", self.svg(PictureKind::Map));
        let _ = writeln!(
            page,
            "<h2>Space by directory</h2>\n<p class=\"note\">The darker part of each is what nobody else refers to.</p>\n{}",
            self.svg(PictureKind::Treemap)
        );
        let _ = writeln!(page, "<h2>Subvolumes</h2>\n{}", self.subvolumes.html());
        self.write_findings(&mut page);
        self.write_troubles(&mut page);
        page.push_str("</body>\n</html>\n");
        page
    }

    fn write_findings(&self, page: &mut String) {
        page.push_str("<h2>What the check found</h2>\n");
        let report = match &self.findings {
            None => {
                page.push_str(
                    "<p>Nothing was checked: a check is of the last commit, and this is another one.</p>\n",
                );
                return;
            }
            Some(Ok(report)) => report,
            Some(Err(error)) => {
                let _ = writeln!(
                    page,
                    "<p class=\"error\">It could not be made: {}</p>",
                    xml(&error.to_string())
                );
                return;
            }
        };
        if report.findings.is_empty() {
            page.push_str("<p>Nothing. Data was not read.</p>\n");
            return;
        }
        page.push_str("<table>\n");
        for finding in &report.findings {
            let class = if finding.severity == Severity::Error { "error" } else { "note" };
            let words = xml(&finding.to_string());
            let _ = writeln!(page, "<tr><td class=\"{class}\">{}</td><td>{words}</td></tr>", finding.number);
        }
        page.push_str("</table>\n");
    }

    fn write_troubles(&self, page: &mut String) {
        if self.troubles.is_empty() {
            return;
        }
        page.push_str("<h2>What could not be read</h2>\n<ul>\n");
        for trouble in &self.troubles {
            let _ = writeln!(page, "<li class=\"error\">{}</li>", xml(trouble));
        }
        if self.more_troubles > 0 {
            let _ = writeln!(page, "<li>and {} more</li>", self.more_troubles);
        }
        page.push_str("</ul>\n");
    }
}
