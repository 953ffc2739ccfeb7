//! `cargo xtask readme`: the parts of pages that are made from data.
//!
//! `docs/coverage.md` and `docs/limitations.md` come from `docs/coverage/*.toml`. README.md takes its evidence and its speed from the
//! files that the proof, the suites and the benches write, so that every number on the first page is one that a command wrote. The page about the design takes its
//! table of locks from their declarations.

mod evidence;
mod locks;
mod speed;

pub use evidence::POWER_CUTS;

use anyhow::{Context, Result};

use crate::coverage::{self, between};
use creamery_workspace::{read, root};

const README: &str = "README.md";
const EVIDENCE: (&str, &str) = ("<!-- evidence: begin (cargo xtask readme) -->", "<!-- evidence: end -->");
const SPEED: (&str, &str) = ("<!-- speed: begin (cargo xtask readme) -->", "<!-- speed: end -->");
const DESIGN: &str = "docs/internals/design.md";
const LOCKS: (&str, &str) = ("<!-- locks: begin (cargo xtask readme) -->", "<!-- locks: end -->");

/// Writes the pages that are not up to date.
pub fn write_pages() -> Result<()> {
    for (page, new) in pages()? {
        if read(page)? == new {
            println!("{page} is up to date");
        } else {
            std::fs::write(root().join(page), new).with_context(|| format!("writing {page}"))?;
        }
    }
    Ok(())
}

/// The pages whose generated parts differ from their data.
pub(crate) fn stale_pages() -> Result<Vec<&'static str>> {
    let mut stale = Vec::new();
    for (page, new) in pages()? {
        if read(page)? != new {
            stale.push(page);
        }
    }
    Ok(stale)
}

/// Each page with fresh parts.
fn pages() -> Result<Vec<(&'static str, String)>> {
    let sheets = coverage::sheets()?;
    let mut readme = read(README)?;
    readme = between(&readme, EVIDENCE, &evidence::points(&sheets)?).context("in README.md")?;
    readme = between(&readme, SPEED, &speed::table()?).context("in README.md")?;
    let design = between(&read(DESIGN)?, LOCKS, &locks::table()?).with_context(|| format!("in {DESIGN}"))?;
    let mut pages = vec![(README, readme), (DESIGN, design)];
    pages.extend(coverage::pages(&sheets)?);
    Ok(pages)
}
