//! The table of damage: each row changes one thing in all copies and seals it, and must give the stated finding.
//!
//! If btrfs check complains, we must, too; each row states whether it does, and the test shows it. A row without an error, which btrfs
//! check accepts, is no damage but a state that only looks like it.

mod blocks;
mod caches;
mod devices;
mod edits;
mod extents;
mod files;
mod quotas;
mod roots;
mod states;

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use creamery_base::TreeId;
use creamery_check::{Problem, Severity};
use creamery_format::{KeyType, RawSuperblock};
use creamery_testkit::Run;
use creamery_testkit::harness::Case;

use crate::image::{Image, Item, checked};
use crate::shapes::{self, Shape};

type Edit = fn(&mut [u8], usize);

enum Change {
    /// The first item of this type in the tree for which the function returns true.
    Item(TreeId, KeyType, fn(&Item) -> bool, Edit),
    /// The last such item.
    Last(TreeId, KeyType, fn(&Item) -> bool, Edit),
    /// The root block of a tree.
    Block(TreeId, Edit),
    /// A leaf that is not the tree's root.
    Leaf(TreeId, Edit),
    Superblock(fn(&mut RawSuperblock)),
    /// Anything else.
    Image(fn(&Image) -> Result<()>),
}
use Change::{Block, Image as Any, Item as One, Last, Leaf, Superblock as Super};

struct DamageRow {
    name: &'static str,
    change: Change,
    want: &'static [Problem],
    /// Whether btrfs check complains.
    btrfs: bool,
}

const fn row(name: &'static str, change: Change, want: &'static [Problem], btrfs: bool) -> DamageRow {
    DamageRow { name, change, want, btrfs }
}
fn apply(image: &Image, change: &Change) -> Result<()> {
    let pick = |tree, kind, wanted: fn(&Item) -> bool, last: bool| -> Result<Item> {
        let mut items = image.items(tree)?;
        items.retain(|it| it.key.kind == kind && wanted(it));
        // The first slot of a leaf is its parent's key: removing it is another kind of damage. The place of items depends on the kernel's
        // commits, so all candidates may lie there.
        let inside = |it: &&Item| it.slot > 0;
        let found = if last {
            items.iter().rfind(inside).or(items.last())
        } else {
            items.iter().find(inside).or(items.first())
        };
        found.cloned().context("the image has no such item")
    };
    match change {
        One(tree, kind, wanted, edit) => {
            let item = pick(*tree, *kind, *wanted, false)?;
            image.change(item.block, |bytes| edit(bytes, item.slot))
        }
        Last(tree, kind, wanted, edit) => {
            let item = pick(*tree, *kind, *wanted, true)?;
            image.change(item.block, |bytes| edit(bytes, item.slot))
        }
        Block(tree, edit) => image.change(image.blocks(*tree)?[0], |bytes| edit(bytes, 0)),
        Leaf(tree, edit) => {
            let leaf = *image.blocks(*tree)?.get(2).context("the tree has one block")?;
            image.change(leaf, |bytes| edit(bytes, 0))
        }
        Super(edit) => image.change_superblocks(edit),
        Any(edit) => edit(image),
    }
}

fn judge(base: &Path, damaged: &Path, row: &DamageRow) -> Result<()> {
    shapes::copy(base, damaged)?;
    apply(&Image::open(damaged)?, &row.change)?;
    let finished = Run::new("btrfs").args(["check", "--check-data-csum"]).arg(damaged).output()?;
    // It reports some mismatches and ends with 0 all the same.
    let said = finished.stderr_text();
    let harmless = row.want.iter().all(|want| want.severity() == Severity::Warning);
    // It reports an old cache that it discards, and finds no error. A mismatch that it calls minor is a warning if Linux mounts the image.
    let is_minor = |line: &str| harmless && line.contains("WARNING: minor");
    let told = said.lines().filter(|line| !line.contains("free space cache") && !is_minor(line));
    let told = told.flat_map(|line| {
        ["mismatch", "didn't find", "out of order", "ERROR:"].map(|word| line.contains(word))
    });
    let told = told.into_iter().any(|told| told);
    let complains = finished.code != Some(0) || told;
    let report = match checked(damaged, true) {
        Ok(report) => report,
        Err(error) => bail!("not checked at all: {error}"),
    };
    let numbers: Vec<u16> = report.findings.iter().map(|finding| finding.number).collect();
    for want in row.want {
        let shown: Vec<String> = report.findings.iter().take(12).map(ToString::to_string).collect();
        ensure!(numbers.contains(&want.number()), "want {} ({want}), found {shown:#?}", want.number());
    }
    ensure!(
        row.btrfs || !harmless || report.is_clean(),
        "errors in what is as it should be: {:#?}",
        report.findings
    );
    ensure!(!complains || !report.is_clean(), "btrfs check complains and we do not: {finished}");
    ensure!(
        complains == row.btrfs,
        "btrfs check {}: {finished}",
        if complains { "complains" } else { "is content" }
    );
    Ok(())
}

type DamageGroup = (&'static str, Shape, &'static [DamageRow]);

/// Small blocks, so that there are many.
const SMALL: Shape = Shape::new(&["-n", "4096"], "");

const GROUPS: &[DamageGroup] = &[
    ("files", SMALL, files::ROWS),
    ("holes", Shape::new(&["-O", "^no-holes"], ""), files::HOLES),
    ("blocks", SMALL, blocks::ROWS),
    ("sectors", Shape::new(&["-n", "16384"], ""), blocks::SECTORS),
    ("extents", SMALL, extents::ROWS),
    ("devices", SMALL, devices::ROWS),
    ("roots", SMALL, roots::ROWS),
    ("quotas", Shape::quotas(&["-O", "quota"]), quotas::ROWS),
    ("simple-quotas", Shape::quotas(&["-O", "squota"]), quotas::ROWS),
    ("states", Shape::running(), states::ROWS),
    ("old-free-space-cache", Shape::old_cache(), caches::ROWS),
];

pub(crate) fn cases() -> Vec<Case> {
    let case = |(name, shape, rows): &'static DamageGroup| {
        Case::new(format!("damage/{name}"), &shapes::NEEDS, move |bench| {
            let base = shapes::make(&bench.scratch, shape)?;
            let damaged = bench.scratch.file("damaged.img");
            let failed: Vec<String> = rows
                .iter()
                .filter_map(|row| {
                    judge(&base, &damaged, row).err().map(|error| format!("{}: {error:#}", row.name))
                })
                .collect();
            ensure!(failed.is_empty(), "{} of {} rows:\n{}", failed.len(), rows.len(), failed.join("\n"));
            Ok(())
        })
    };
    GROUPS.iter().map(case).collect()
}
