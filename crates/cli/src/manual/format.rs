//! creamery(5): the pages about paths and mount options.

use clap_mangen::roff::{Roff, roman};
use creamery::Error;

use super::names::FORMS;
use super::page;
use crate::help::VERSION;
use crate::help::markdown::{self, PageBlock};

/// The manual page made of `pages`, each a section. Errors: out of memory.
pub(super) fn render(pages: &[&str]) -> Result<Vec<u8>, Error> {
    let mut roff = Roff::new();
    let source = format!("creamery {VERSION}");
    roff.control("TH", ["creamery", FORMS, "", source.as_str(), "Creamery"]);
    roff.control("SH", ["NAME"]);
    roff.text([roman("creamery - paths in images, and mount options")]);
    for text in pages {
        for block in markdown::parse(text) {
            // A heading in a page becomes a part of its section.
            let block = match block {
                PageBlock::Heading(level, title) if level > 1 => PageBlock::Heading(3, title),
                block => block,
            };
            page::blocks(&mut roff, &[block]);
        }
    }
    roff.control("SH", ["SEE ALSO"]);
    roff.text([roman("creamery(1), creamery-mount(1), mount(8), fstab(5), btrfs(5)")]);
    let mut out = Vec::new();
    roff.to_writer(&mut out)?;
    Ok(out)
}
