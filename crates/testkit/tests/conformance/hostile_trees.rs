//! Damage in a tree that not everybody needs.

use std::path::Path;

use anyhow::{Result, ensure};
use creamery_testkit::FuseMount;
use creamery_testkit::harness::{Bench, Case};

use crate::hostile::Victim;
use crate::item_types::FREE_SPACE_EXTENT;
use crate::support::{MOUNTED, expect_refusal, expect_untouched, inside, mkfs_from};

const FREE_SPACE_TREE: u64 = 10;
/// In a key.
const KEY_KIND: usize = 8;
const KEY_OFFSET: usize = 9;

pub(crate) fn cases() -> Vec<Case> {
    vec![Case::new("hostile/reading-needs-no-free-space-tree", &MOUNTED, reading_needs_no_free_space_tree)]
}

/// All that reads, and one that would write.
fn read_all(bench: &Bench, image: &Path) -> Result<()> {
    let listed = bench.creamery().run(["ls"]).arg(inside(image, "/")).ok()?;
    ensure!(listed.stdout_text().trim() == "file", "{listed}");
    ensure!(bench.creamery().run(["cat"]).arg(inside(image, "/file")).ok()?.stdout == b"content");
    bench.creamery().run(["df"]).arg(image).ok()?;
    bench.creamery().run(["filesystem", "usage"]).arg(image).ok()?;
    let mount = FuseMount::mount(bench.creamery(), image, &bench.scratch.file("fuse"), "ro")?;
    ensure!(std::fs::read(mount.dir().join("file"))? == b"content");
    mount.unmount()?;
    let new = || bench.creamery().run(["mkdir"]).arg(inside(image, "/new"));
    expect_refusal(new(), &["disk.img", "free space tree"])?;
    let point = bench.scratch.dir("point")?;
    expect_refusal(bench.creamery().run(["mount"]).arg(image).arg(point), &["free space tree"])
}

/// What is in it cannot be.
fn reading_needs_no_free_space_tree(bench: &Bench) -> Result<()> {
    let (image, source) = (bench.scratch.file("disk.img"), bench.scratch.dir("source")?);
    std::fs::write(source.join("file"), "content")?;
    mkfs_from(bench.creamery(), &["-b", "256M"], &source, &image)?;
    let mut victim = Victim::new(image.clone())?;
    victim.keep_blocks_of(FREE_SPACE_TREE)?;
    for (at, what) in [(KEY_OFFSET, "lengths that are not aligned"), (KEY_KIND, "items of another type")] {
        let edited = victim.edit(FREE_SPACE_EXTENT, &mut |key, _| {
            key[at] ^= 1;
            true
        })?;
        ensure!(edited > 0, "{what}: nothing is changed");
        expect_untouched(&image, || read_all(bench, &image))?;
        victim.restore()?;
    }
    bench.creamery().run(["mkdir"]).arg(inside(&image, "/new")).ok()?;
    Ok(())
}
