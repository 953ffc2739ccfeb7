//! A first look: makes an image of this source tree, works on it, and has the judges of the host check it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use creamery_testkit::walk::{Compare, Walk, expect_same};
use creamery_testkit::{FuseMount, Judge, Judges, LoopMount, Program, Run, btrfs_check, is_root};

use creamery_workspace::{build_tested, root, target};

const LEFT_OUT: [&str; 3] = ["target", ".git", "fuzz"];

/// `cargo xtask demo`.
pub(crate) fn demo() -> Result<()> {
    println!("Building Creamery (the first time takes a minute or two) ...");
    let creamery = Program::at(&build_tested()?);
    let place = fresh_place()?;
    let (tree, image) = (place.join("tree"), place.join("creamery.img"));
    let files = stage(&tree)?;
    let before = Walk::take(&tree)?;

    let made =
        creamery.run(["mkfs", "-L", "creamery", "-b", "1G", "--rootdir"]).arg(&tree).arg(&image).ok()?;
    let shown = image.display();
    println!(
        "1. Made a Btrfs image from this source tree ({files} files) in {:.2} s:\n     {shown}",
        made.elapsed.as_secs_f64()
    );
    println!("   {}", who_needed());

    let listed = creamery.run(["ls", "-lR"]).arg(inside(&image, "/")).ok()?.stdout_text().lines().count();
    let readme = creamery.run(["cat"]).arg(inside(&image, "/README.md")).ok()?.stdout;
    ensure!(readme == std::fs::read(tree.join("README.md"))?, "README.md reads back differently");
    println!(
        "2. Read it back without mounting: `creamery ls -lR` prints {listed} lines, `creamery cat` gives README.md byte for byte."
    );

    let wanted = work(&creamery, &place, &tree, &image, &before)?;
    judge(&creamery, &place, &image, &wanted)?;
    println!("\nThe image stays at {shown}. Look at it:\n  {} ls -l {shown}:/", creamery.path().display());
    println!("  {} mount {shown} SOME_EMPTY_FOLDER", creamery.path().display());
    Ok(())
}

fn fresh_place() -> Result<PathBuf> {
    let place = target().join("demo");
    if place.exists() {
        std::fs::remove_dir_all(&place).with_context(|| format!("clearing {}", place.display()))?;
    }
    std::fs::create_dir_all(&place).with_context(|| format!("making {}", place.display()))?;
    Ok(place.canonicalize()?)
}

/// Copies the source tree without build results, so the demo does not depend on other files there.
fn stage(tree: &Path) -> Result<usize> {
    std::fs::create_dir(tree)?;
    for entry in std::fs::read_dir(root())? {
        let entry = entry?;
        if !LEFT_OUT.iter().any(|name| entry.file_name() == *name) {
            Run::new("cp").args(["-a", "--"]).arg(entry.path()).arg(tree).ok()?;
        }
    }
    let walk = Walk::take(tree)?;
    Ok(walk.entries().filter(|(_, entry)| entry.kind == "file").count())
}

fn who_needed() -> &'static str {
    if !is_root() {
        "No root, no loop device, no kernel module had a part in it."
    } else {
        "It needs no root, no loop device and no kernel module (you happen to be root)."
    }
}

/// Changes the image, mounted if the host can; returns the content that it must have afterwards.
fn work(creamery: &Program, place: &Path, tree: &Path, image: &Path, before: &Walk) -> Result<Walk> {
    if let Some(reason) = Judges::here().missing(Judge::Fuse) {
        creamery.run(["mkdir"]).arg(inside(image, "/made-without-a-mount")).ok()?;
        creamery
            .run(["cp", "-a"])
            .arg(tree.join("README.md"))
            .arg(inside(image, "/made-without-a-mount/README.md"))
            .ok()?;
        println!(
            "3. Wrote to it with `creamery mkdir` and `creamery cp`; a mount is not possible here: {reason}."
        );
        let out = place.join("read-back");
        creamery.run(["cp", "-a"]).arg(inside(image, "/")).arg(&out).ok()?;
        return Walk::take(&out);
    }
    let mount = FuseMount::mount(creamery, image, &place.join("mnt"), "")?;
    let dir = mount.dir();
    expect_same("the mount", before, &Walk::take(dir)?, &Compare { owners: false, ..Compare::default() })?;
    let made = dir.join("made-by-the-demo");
    std::fs::create_dir(&made)?;
    Run::new("cp").args(["-a", "--"]).arg(tree.join("crates")).arg(&made).ok()?;
    std::fs::write(made.join("note"), b"written through the mount\n")?;
    std::fs::hard_link(made.join("note"), made.join("note-again"))?;
    std::os::unix::fs::symlink("note", made.join("note-symlink"))?;
    std::fs::rename(made.join("crates/base"), made.join("base-moved"))?;
    std::fs::remove_dir_all(made.join("crates"))?;
    let wanted = Walk::take(dir)?;
    mount.unmount()?;
    println!(
        "3. Mounted it with FUSE: {} entries, all as in the source tree. Copied a folder in, linked, renamed, deleted, unmounted.",
        before.len()
    );
    Ok(wanted)
}

fn judge(creamery: &Program, place: &Path, image: &Path, wanted: &Walk) -> Result<()> {
    let judges = Judges::here();
    println!("4. The judges of this host:");
    match judges.missing(Judge::BtrfsProgs) {
        None => {
            btrfs_check(image)?;
            println!("   - btrfs check --check-data-csum: no error found");
        }
        Some(reason) => println!("   - btrfs check: not asked ({reason})"),
    }
    let kernel = [Judge::Root, Judge::KernelBtrfs, Judge::LoopDevices];
    if let Some(reason) = kernel.iter().find_map(|judge| judges.missing(*judge)) {
        println!("   - the Linux kernel: not asked ({reason})");
        return Ok(());
    }
    let mount = LoopMount::mount(image, &place.join("kernel"), "")?;
    expect_same("the kernel's view", wanted, &Walk::take(mount.dir())?, &Compare::default())?;
    std::fs::write(mount.dir().join("written-by-linux"), b"written by Linux\n")?;
    mount.unmount()?;
    let said = creamery.run(["cat"]).arg(inside(image, "/written-by-linux")).ok()?.stdout_text();
    ensure!(said == "written by Linux\n", "what Linux wrote reads back as {said:?}");
    println!(
        "   - the Linux kernel: mounted it, saw {} entries as they should be, logged no complaint, and wrote a file that Creamery reads",
        wanted.len()
    );
    Ok(())
}

fn inside(image: &Path, path: &str) -> std::ffi::OsString {
    let mut word = image.as_os_str().to_owned();
    word.push(":");
    word.push(path);
    word
}
