//! `creamery inspect-internal`.

use std::path::{Path, PathBuf};

use creamery::id::Logical;
use creamery::inspect::{self, SuperDump, TreeDump};
use creamery::partitions::ImageName;

use crate::args::{DumpSuperArgs, DumpTreeArgs};
use crate::failure::{Failure, with_all};
use crate::images::warn_of_table;
use crate::output::{Output, Printed};

pub(crate) fn dump_super(args: &DumpSuperArgs) -> Result<(), Failure> {
    let told = |error| Failure::new("dump-super", error);
    let mut out = Output::new();
    let what = SuperDump { full: args.full, all: args.all };
    let mut images: Vec<&Path> = args.images.iter().map(PathBuf::as_path).collect();
    // Each device is opened separately.
    let set = args.set.of(images[0]);
    images.extend(set.named().skip(1));
    let outcome = with_all(images, |image| {
        warn_of_table(image);
        inspect::dump_super(image, what, &mut Printed(&mut out)).map_err(told)
    });
    out.finish().map_err(told).and(outcome)
}

pub(crate) fn dump_tree(args: &DumpTreeArgs) -> Result<(), Failure> {
    let told = |error| Failure::new("dump-tree", error);
    let mut out = Output::new();
    let mut wanted: Vec<TreeDump> = args.block.iter().map(|&at| TreeDump::Block(Logical::new(at))).collect();
    if let Some(tree) = &args.tree {
        wanted.push(tree.parse().map_err(told)?);
    }
    if wanted.is_empty() {
        wanted.push(TreeDump::Everything);
    }
    warn_of_table(&args.image);
    for what in wanted {
        let is_number = !matches!(what, TreeDump::Everything);
        let dumped = inspect::dump_tree(args.set.of(&args.image), what, &mut Printed(&mut out)).map_err(told);
        let is_there = ImageName::metadata(&args.image).is_ok();
        dumped.map_err(|failure| if is_number && is_there { failure.of_number() } else { failure })?;
    }
    out.finish().map_err(told)
}
