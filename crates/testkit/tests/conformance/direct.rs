//! Writes around the kernel's page cache (`O_DIRECT`), and what those read who go through it.

use anyhow::Result;
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, Judge, Run};

use crate::support::{MOUNTED, mkfs_empty};

const DIRECT_C: &str = include_str!("direct.c");
const ROUNDS: &str = "500";

pub(crate) fn cases() -> Vec<Case> {
    let judges = [&MOUNTED[..], &[Judge::Tool("cc")]].concat();
    vec![Case::new("direct/asynchronous-writes-beside-reads", &judges, writes_beside_reads)]
}

fn writes_beside_reads(bench: &Bench) -> Result<()> {
    let program = bench.scratch.dir("program")?;
    std::fs::write(program.join("direct.c"), DIRECT_C)?;
    Run::new("cc").args(["-O1", "-o", "direct", "direct.c"]).within(&program).ok()?;
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "512M", &image)?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), "")?;
    Run::new(program.join("direct")).arg(mount.dir().join("file")).arg(ROUNDS).ok()?;
    mount.unmount()
}
