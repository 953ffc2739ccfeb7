//! Filesystems that other programs have made or mended: whole, and in a form that neither Creamery nor Linux writes.

use std::fs;
use std::os::unix::fs::symlink;

use anyhow::{Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, Run, btrfs_check};

use crate::hostile::Victim;
use crate::item_types::{DIR_ITEM, EXTENT_DATA, METADATA_ITEM};
use crate::support::{MOUNTED, expect_refusal, inside, mkfs_empty, mkfs_from};

const EXTENT_TREE: u64 = 2;
const ROOT_TREE: u64 = 1;
/// In the data of a file extent item: behind its head are the bytes of an inline one.
const INLINE: usize = 21;
/// In the data of an extent item: its transaction.
const GENERATION: usize = 8;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("foreign/links-without-a-target", &MOUNTED, links_without_a_target),
        Case::new("foreign/without-an-entry-for-the-default", &MOUNTED, without_an_entry_for_the_default),
        Case::new("foreign/blocks-newer-than-their-items", &MOUNTED, blocks_newer_than_their_items),
    ]
}

/// `btrfs-image` writes zeros where links had their targets.
fn links_without_a_target(bench: &Bench) -> Result<()> {
    let (image, source) = (bench.scratch.file("disk.img"), bench.scratch.dir("source")?);
    fs::write(source.join("before"), "before")?;
    symlink("a/target", source.join("link"))?;
    fs::write(source.join("z-behind"), "behind")?;
    mkfs_from(bench.creamery(), &["-b", "256M"], &source, &image)?;
    let edited = Victim::new(image.clone())?.edit(EXTENT_DATA, &mut |_, data| {
        let is_target = data.ends_with(b"a/target");
        if is_target {
            data[INLINE..].fill(0);
        }
        is_target
    })?;
    ensure!(edited >= 1, "no link is changed");
    btrfs_check(&image)?;
    let listed = bench.creamery().run(["ls", "-l"]).arg(inside(&image, "/")).ok()?.stdout_text();
    ensure!(listed.lines().count() == 3 && listed.contains("z-behind"), "{listed}");
    for command in [&["stat"][..], &["find"]] {
        bench.creamery().run(command).arg(inside(&image, "/link")).ok()?;
    }
    expect_refusal(bench.creamery().run(["cat"]).arg(inside(&image, "/link")), &["not found"])?;
    expect_refusal(bench.creamery().run(["ls"]).arg(inside(&image, "/link/")), &["not found"])?;
    expect_refusal(
        bench.creamery().run(["cp"]).arg(source.join("before")).arg(inside(&image, "/link")),
        &["not found"],
    )?;
    // No copy can have such a link. As with cp(1) all else is copied, and the status tells.
    let copy = bench.scratch.dir("copy")?;
    let copied = bench.creamery().run(["cp", "-a"]).arg(inside(&image, "/.")).arg(&copy).output()?;
    ensure!(copied.code == Some(1) && copied.stderr_text().contains("/link: left out"), "{copied}");
    ensure!(fs::read(copy.join("z-behind"))? == b"behind", "what comes behind the link is not copied");
    let restored = bench.scratch.dir("restored")?;
    bench.creamery().run(["restore"]).arg(&image).arg(&restored).ok()?;
    ensure!(fs::read(restored.join("z-behind"))? == b"behind", "what comes behind the link is not restored");
    let archive = bench.scratch.file("all.tar");
    bench.creamery().run(["tar", "-cf"]).arg(&archive).arg(inside(&image, "/")).ok()?;
    let names = Run::new("tar").arg("-tf").arg(&archive).ok()?.stdout_text();
    ensure!(names.contains("link") && names.contains("z-behind"), "{names}");
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), "ro")?;
    let target = fs::read_link(mount.dir().join("link"))?;
    ensure!(target.as_os_str().is_empty(), "the mount shows {}", target.display());
    mount.unmount()
}

/// The root tree's entry for the default subvolume is another one's: there is none that has its name.
fn without_an_entry_for_the_default(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    bench.creamery().run(["mkdir"]).arg(inside(&image, "/dir")).ok()?;
    let mut victim = Victim::new(image.clone())?;
    victim.keep_blocks_of(ROOT_TREE)?;
    let renamed = victim.rename(&[DIR_ITEM], b"default", b"another")?;
    ensure!(renamed >= 1, "no entry is renamed");
    drop(victim);
    let label = |wanted: &str| -> Result<()> {
        let said = bench.creamery().run(["filesystem", "label"]).arg(&image).ok()?.stdout_text();
        ensure!(said.trim_end() == wanted, "the label is {said:?}");
        Ok(())
    };
    bench.creamery().run(["filesystem", "label"]).arg(&image).arg("one").ok()?;
    label("one")?;
    bench.creamery().run(["property", "set"]).arg(&image).args(["label", "two"]).ok()?;
    label("two")?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), "")?;
    bench.creamery().run(["filesystem", "label"]).arg(mount.dir()).arg("three").ok()?;
    fs::write(mount.dir().join("file"), "file")?;
    mount.unmount()?;
    label("three")?;
    bench.creamery().run(["tune", "-f", "-u"]).arg(&image).ok()?;
    ensure!(bench.creamery().run(["cat"]).arg(inside(&image, "/file")).ok()?.stdout == b"file");
    expect_refusal(
        bench.creamery().run(["subvolume", "set-default", "5"]).arg(&image),
        &["entry for the default"],
    )
}

/// Extent items that name an earlier transaction than the blocks that they are about, as repairs leave them.
fn blocks_newer_than_their_items(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    bench.creamery().run(["mkdir"]).arg(inside(&image, "/dir")).ok()?;
    let mut victim = Victim::new(image.clone())?;
    victim.keep_blocks_of(EXTENT_TREE)?;
    let older = |by: u64| {
        move |_: &mut [u8], data: &mut [u8]| {
            let found = u64::from_le_bytes(data[GENERATION..GENERATION + 8].try_into().expect("eight bytes"));
            data[GENERATION..GENERATION + 8].copy_from_slice(&found.wrapping_sub(by).to_le_bytes());
            true
        }
    };
    // An item that is newer than its block is another matter: a write was lost.
    victim.edit(METADATA_ITEM, &mut older(u64::MAX))?;
    expect_refusal(bench.creamery().run(["tune", "-f", "-u"]).arg(&image), &["wrong generation"])?;
    victim.restore()?;
    let edited = victim.edit(METADATA_ITEM, &mut older(1))?;
    ensure!(edited > 4, "only {edited} items are changed");
    drop(victim);
    bench.creamery().run(["tune", "-f", "-u"]).arg(&image).ok()?;
    let listed = bench.creamery().run(["ls"]).arg(inside(&image, "/")).ok()?;
    ensure!(listed.stdout_text().trim() == "dir", "{listed}");
    Ok(())
}
