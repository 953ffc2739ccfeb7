//! `creamery inspect-internal`.

use creamery::inspect::{self, SuperDump, TreeDump};

use crate::args::{DumpSuperArgs, DumpTreeArgs};
use crate::failure::Failure;
use crate::output::{Output, Printed};

pub(crate) fn dump_super(args: &DumpSuperArgs) -> Result<(), Failure> {
    let told = |error| Failure::new("dump-super", error);
    let mut out = Output::new();
    let what = SuperDump { full: args.full, all: args.all };
    for image in &args.images {
        inspect::dump_super(image, what, &mut Printed(&mut out)).map_err(told)?;
    }
    out.finish().map_err(told)
}

pub(crate) fn dump_tree(args: &DumpTreeArgs) -> Result<(), Failure> {
    let told = |error| Failure::new("dump-tree", error);
    let mut out = Output::new();
    let mut wanted: Vec<TreeDump> = args.block.iter().copied().map(TreeDump::Block).collect();
    if let Some(tree) = &args.tree {
        wanted.push(tree.parse().map_err(told)?);
    }
    if wanted.is_empty() {
        wanted.push(TreeDump::Everything);
    }
    for what in wanted {
        inspect::dump_tree(&args.image, what, &mut Printed(&mut out)).map_err(told)?;
    }
    out.finish().map_err(told)
}
