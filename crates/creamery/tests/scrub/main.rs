//! Scrub on failing devices, with rot and power cuts: it repairs what a profile tolerates, reports the rest, and makes nothing worse.
//!
//! The sets lie in memory, laid out by hand from an image of one device ([`world`]): of every profile, with all places known from the
//! on-disk format. A prediction ([`predict`]) gives for each kind of damage the findings of a scrub, place by place, and the content
//! afterwards. Every change tests a share of the cases, `CREAMERY_MATRIX=whole` all of them.

mod areas;
mod asked;
mod classes;
mod content;
mod cuts;
mod damage;
mod disk;
mod faults;
mod flushes;
mod geometry;
mod kept;
mod limits;
mod log;
mod many;
mod odd;
mod parts;
mod places;
mod predict;
mod rot;
mod sound;
mod stops;
mod straddle;
mod trees;
mod unreadable;
mod world;

use creamery_testkit::harness::Case;

fn main() -> std::process::ExitCode {
    let cases: Vec<Case> = [
        sound::cases(),
        asked::cases(),
        rot::cases(),
        classes::cases(),
        faults::cases(),
        cuts::cases(),
        straddle::cases(),
        trees::cases(),
        many::cases(),
        odd::cases(),
        limits::cases(),
        log::cases(),
        unreadable::cases(),
        flushes::cases(),
        areas::cases(),
        stops::cases(),
        parts::cases(),
        kept::cases(),
        places::cases(),
    ]
    .into_iter()
    .flatten()
    .collect();
    creamery_testkit::harness::main(cases)
}

/// The name of a case of the matrix.
fn case_name(what: &str, profile: &str) -> String {
    format!("scrub-matrix/{what}-{profile}")
}
