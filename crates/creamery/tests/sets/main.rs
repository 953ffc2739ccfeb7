//! Filesystems of several devices that Linux made: every profile, on each number of members from its minimum to six, with each checksum and
//! three sizes of nodes.
//!
//! The kernel's own mount is the reference. A set is read whole, without each member and each pair of members, and with rot in each stripe
//! of its chunks. Every change tests one set of each profile, `CREAMERY_MATRIX=whole` all of them.
//!
//! The kernel never mounts a set with rot: only the library reads such copies.

mod beside_linux;
mod edited;
mod kernel_set;
mod members_away;
mod oracle;
mod parity;
mod rot;
mod scrubbed;
mod seen;

use std::path::Path;

use anyhow::{Context, Result, ensure};
use creamery::Image;
use creamery::check::{CheckOptions, NoProgress, Report, check};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{Judge, Random, seed_of, share_or_whole};

use kernel_set::KernelSet;
use oracle::Oracle;
use seen::{Seen, expect_same};

/// The parameters of a set.
#[derive(Clone, Debug)]
struct SetShape {
    profile: &'static str,
    members: usize,
    checksum: &'static str,
    node: u32,
}

impl SetShape {
    fn name(&self) -> String {
        let Self { profile, members, checksum, node } = self;
        format!("set-matrix/{profile}-on-{members}-{checksum}-{}k", node >> 10)
    }
}

/// Each profile, and its minimum number of members.
const PROFILES: [(&str, usize); 9] = [
    ("single", 2),
    ("dup", 2),
    ("raid0", 2),
    ("raid1", 2),
    ("raid1c3", 3),
    ("raid1c4", 4),
    ("raid10", 2),
    ("raid5", 2),
    ("raid6", 3),
];
const MEMBERS_MAX: usize = 6;
const CHECKSUMS: [&str; 3] = ["crc32c", "xxhash", "sha256"];
const NODES: [u32; 3] = [4 << 10, 16 << 10, 64 << 10];

const NEEDS: [Judge; 4] = [Judge::Root, Judge::BtrfsProgs, Judge::KernelBtrfs, Judge::LoopDevices];

fn shapes_of(profile: &'static str, least: usize) -> Vec<SetShape> {
    let shape = move |members, checksum, node| SetShape { profile, members, checksum, node };
    let counts = least..=MEMBERS_MAX;
    counts
        .flat_map(|members| CHECKSUMS.iter().map(move |checksum| (members, *checksum)))
        .flat_map(|(members, checksum)| NODES.iter().map(move |&node| shape(members, checksum, node)))
        .collect()
}

fn main() -> std::process::ExitCode {
    let mut random = Random::new(seed_of("sets of several devices"));
    let chosen = PROFILES.iter().flat_map(|&(profile, least)| {
        let mut shapes = shapes_of(profile, least);
        random.shuffle(&mut shapes);
        let count = share_or_whole(1, shapes.len());
        shapes.truncate(count);
        shapes
    });
    let cases = chosen.map(|shape| Case::new(shape.name(), &NEEDS, move |bench| set(bench, &shape)));
    creamery_testkit::harness::main(cases.chain(edited::cases()).chain(beside_linux::cases()).collect())
}

/// All tests of one set. The kernel reads the members, the library copies of them: it opens no file that the kernel has open.
fn set(bench: &Bench, shape: &SetShape) -> Result<()> {
    let made = KernelSet::make(bench, shape).context("the kernel makes the set")?;
    let truth = made.kernel_view(&made.all(), "ro").context("the kernel reads the set")?;
    ensure!(truth.is_whole(), "the kernel reads all of a whole set");
    let files = made.copy_in(&bench.scratch.dir("copy")?)?;
    let fs = Image::open(&files[0]).context("the set is opened")?;
    expect_same("the whole set", &truth, &Seen::by_us(&fs)?)?;
    let counted = fs.statistics().volume;
    ensure!(counted.mirror_fallbacks == 0 && counted.parity_read_bytes == 0, "nothing is rebuilt in vain");
    fs.close()?;
    let oracle = Oracle::of(&files)?;
    let report = checked(&files)?;
    ensure!(report.findings.is_empty(), "the check of a whole set finds {:#?}", report.findings);
    ensure!(report.counts.verified_bytes > 0, "data is verified");
    let has_parity = oracle.parity() > 0;
    ensure!((report.counts.parity_bytes > 0) == has_parity, "{} bytes of parity", report.counts.parity_bytes);
    members_away::each(bench, (&made, &files), &oracle, &truth).context("members are taken away")?;
    rot::each(&files, &oracle, &truth).context("stripes rot")?;
    if has_parity {
        parity::each(&files, &oracle, &truth).context("parity rots")?;
    }
    let rotten = random_stripe(shape, &oracle);
    scrubbed::each(&files, &oracle, &truth, rotten)
        .with_context(|| format!("scrubs, stripe {rotten} rots"))?;
    made.end()
}

/// A random stripe for each shape.
fn random_stripe(shape: &SetShape, oracle: &Oracle) -> usize {
    Random::new(seed_of(&shape.name())).below(oracle.stripes_max() as u64) as usize
}

/// Checks these members with the library, all data and all parity.
fn checked<P: AsRef<Path>>(files: &[P]) -> Result<Report> {
    let options = CheckOptions { check_data_csum: true, check_parity: true, ..CheckOptions::default() };
    check(files, &options, &NoProgress).context("the check reads the set")
}
