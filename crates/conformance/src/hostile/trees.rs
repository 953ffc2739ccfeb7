//! Damage in a tree that not everybody needs.

use std::path::Path;

use anyhow::{Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, Judge, Run};

use crate::hostile::Victim;
use crate::item_types::{FREE_SPACE_EXTENT, INODE_ITEM, XATTR_ITEM};
use crate::support::{MOUNTED, expect_refusal, expect_untouched, inside, mkfs_empty, mkfs_from};

const FS_TREE: u64 = 5;
const FREE_SPACE_TREE: u64 = 10;
/// In a key.
const KEY_KIND: usize = 8;
const KEY_OFFSET: usize = 9;

pub(crate) fn cases() -> Vec<Case> {
    let with_acls = [&MOUNTED[..], &["setfacl", "setfattr"].map(Judge::Tool)].concat();
    vec![
        Case::new("hostile/reading-needs-no-free-space-tree", &MOUNTED, reading_needs_no_free_space_tree),
        Case::new("hostile/acl-of-the-root-that-cannot-be-read", &with_acls, unreadable_acl_of_the_root),
    ]
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

/// Whether the mounter may write to the root directory is a hint alone: where its ACL cannot be read, the image is mounted all the same. Without its
/// inode there is nothing to mount.
fn unreadable_acl_of_the_root(bench: &Bench) -> Result<()> {
    /// The root directory of a subvolume, as a key begins.
    const ROOT: [u8; 8] = 256_u64.to_le_bytes();
    /// In the data of an attribute.
    const NAME_LEN: std::ops::Range<usize> = 27..29;
    const NAME: usize = 30;
    let (image, point) = (bench.scratch.file("disk.img"), bench.scratch.file("fuse"));
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let mount = FuseMount::mount(bench.creamery(), &image, &point, "")?;
    std::fs::write(mount.dir().join("file"), "content")?;
    Run::new("setfacl").args(["-m", "u:7:rwx"]).arg(mount.dir()).ok()?;
    // So that the ACL lies in another leaf than the inode.
    for number in 0..30 {
        let set = Run::new("setfattr").args(["-n", &format!("user.{number}"), "-v", &"x".repeat(3000)]);
        set.arg(mount.dir()).ok()?;
    }
    mount.unmount()?;

    let mut victim = Victim::new(image.clone())?;
    victim.keep_blocks_of(FS_TREE)?;
    let damaged = victim.edit(XATTR_ITEM, &mut |key, data| {
        let is_acl = key.starts_with(&ROOT) && data[NAME..].starts_with(b"system.posix_acl_access");
        if is_acl {
            data[NAME_LEN].copy_from_slice(&u16::MAX.to_le_bytes());
        }
        is_acl
    })?;
    ensure!(damaged == 1, "{damaged} ACLs are damaged");
    let mount = FuseMount::mount(bench.creamery(), &image, &point, "")?;
    ensure!(std::fs::read(mount.dir().join("file"))? == b"content");
    mount.unmount()?;

    let mut victim = Victim::new(image.clone())?;
    victim.keep_blocks_of(FS_TREE)?;
    ensure!(victim.remove_item(INODE_ITEM, &|key, _| key.starts_with(&ROOT))? == 1, "no inode is removed");
    std::fs::create_dir_all(&point)?;
    expect_refusal(bench.creamery().run(["mount"]).arg(&image).arg(&point), &["disk.img", "subvolume 5"])
}
