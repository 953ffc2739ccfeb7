//! Rules that a compiler does not know, and pages that are made from data.
//!
//! `cargo xtask tidy` holds the rules: arrows between crates, circles of files and of folders, the order of folders, sizes, words, the voice,
//! the clock in tests, ranks of locks, invariants, links, and tables that must be true and complete. `cargo xtask readme` writes the pages
//! ([`write_pages`]), and `cargo xtask messages` lists the messages ([`print_messages`]). All of them read the sources as text: this crate builds
//! no other room.

mod arrows;
mod circles;
mod clock;
mod coverage;
mod documents;
mod expected;
mod facade;
mod folders;
mod invariants;
mod locks;
mod manifests;
mod messages;
mod pages;
mod ratchet;
mod silent;
mod sizes;
mod tower;
mod voice;
mod words;

use anyhow::{Result, bail};

pub use coverage::between;
pub use expected::{Expected, Verdict};
pub use messages::print as print_messages;
pub use pages::{POWER_CUTS, write_pages};

/// `cargo xtask tidy`.
pub fn tidy() -> Result<()> {
    let mut complaints = Vec::new();
    arrows::check(&mut complaints)?;
    circles::check(&mut complaints)?;
    folders::check(&mut complaints)?;
    tower::check(&mut complaints)?;
    sizes::check(&mut complaints)?;
    words::check(&mut complaints)?;
    voice::check(&mut complaints)?;
    clock::check(&mut complaints)?;
    locks::check(&mut complaints)?;
    documents::check(&mut complaints)?;
    facade::check(&mut complaints)?;
    manifests::check(&mut complaints)?;
    silent::check(&mut complaints)?;
    invariants::check(&mut complaints)?;
    if complaints.is_empty() {
        println!("tidy");
        return Ok(());
    }
    for complaint in &complaints {
        println!("{complaint}");
    }
    bail!("{} complaints", complaints.len())
}

/// `cargo xtask tidy --voice`.
pub fn list_voice() -> Result<()> {
    voice::list()
}

/// `cargo xtask tidy --ratchet`.
pub fn accept_debts() -> Result<()> {
    let circles = ("circles", circles::debts()?);
    let late = [("voice", voice::debts()?), ("invariants", invariants::debts()?)];
    let sections = sizes::sections()?.into_iter().chain([circles]).chain(folders::debts()?).chain(late);
    ratchet::write(&sections.collect::<Vec<_>>())
}
