//! A damaged root tree: the superblock's backup by which Linux reads an earlier commit gives the same commit here.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::walk::{Compare, Walk, expect_same};
use creamery_testkit::{Finished, FuseMount, LoopMount, Run};

use crate::support::{MOUNTED, expect_refusal, expect_untouched, flip_byte, inside, mkfs_empty};
use crate::tree_log::superblock_word;

/// Device offset of the root tree's address in the superblock.
const ROOT_AT: u64 = 0x10000 + 80;
/// Device offset of the last commit's generation.
const GENERATION_AT: u64 = 0x10000 + 72;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("backup-roots/of-linux", &MOUNTED, |bench| {
            let image = bench.scratch.file("disk.img");
            mkfs_empty(bench.creamery(), &["-m", "single"], "256M", &image)?;
            // Without discards, so that the backup root is still there.
            let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "nodiscard,commit=300")?;
            write_twice(mount.dir(), &|| Run::new("sync").arg("-f").arg(mount.dir()).ok().map(drop))?;
            mount.unmount()?;
            read_by_backup(bench, &image)
        }),
        Case::new("backup-roots/of-ours", &MOUNTED, |bench| {
            let image = bench.scratch.file("disk.img");
            mkfs_empty(bench.creamery(), &["-m", "single"], "256M", &image)?;
            let mount =
                FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("ours"), "commit=300")?;
            write_twice(mount.dir(), &|| bench.creamery().run(["sync"]).arg(mount.dir()).ok().map(drop))?;
            mount.unmount()?;
            read_by_backup(bench, &image)
        }),
        Case::new("backup-roots/behind-a-conversion", &MOUNTED, behind_a_conversion),
    ]
}

/// The earlier root is from before the superblock named the tree of block groups.
fn behind_a_conversion(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    let run = |args: &[&str]| bench.creamery().run(args);
    mkfs_empty(bench.creamery(), &["-m", "single"], "256M", &image)?;
    run(&["cp", "-"]).input("first").arg(inside(&image, "/small")).ok()?;
    for conversion in ["--convert-from-block-group-tree", "--convert-to-block-group-tree"] {
        run(&["tune", conversion]).arg(&image).ok()?;
        let damaged = bench.scratch.file("damaged.img");
        std::fs::copy(&image, &damaged)?;
        damage_root(&damaged)?;
        let read = run(&["cat", "--usebackuproot"]).arg(inside(&damaged, "/small")).output()?;
        ensure!(read.code == Some(1) && read.stdout == b"first", "{conversion}: {read}");
        // If the block group tree cannot be read either, it is passed over, too.
        damage_groups(&damaged)?;
        let read = run(&["cat", "--rescue", "all"]).arg(inside(&damaged, "/small")).output()?;
        ensure!(read.code == Some(1) && read.stdout == b"first", "{conversion}: {read}");
    }
    Ok(())
}

fn write_twice(top: &Path, commit: &dyn Fn() -> Result<()>) -> Result<()> {
    std::fs::create_dir(top.join("folder"))?;
    std::fs::write(top.join("folder/first"), vec![b'1'; 100_000])?;
    std::fs::write(top.join("small"), b"first")?;
    commit()?;
    std::fs::write(top.join("second"), b"second")?;
    commit()
}

/// Damages every block whose header names the block group tree, of any commit.
fn damage_groups(image: &Path) -> Result<()> {
    const NODE: u64 = 16 << 10;
    const OWNER: usize = 88;
    const BLOCK_GROUP_TREE: u64 = 11;
    let bytes = std::fs::read(image)?;
    let fsid = &bytes[0x10000 + 32..0x10000 + 48];
    let mut damaged = 0;
    for (node, at) in bytes.chunks(NODE as usize).zip((0..).step_by(NODE as usize)) {
        if &node[32..48] == fsid && node[OWNER..OWNER + 8] == BLOCK_GROUP_TREE.to_le_bytes() {
            flip_byte(image, at + 200)?;
            damaged += 1;
        }
    }
    ensure!(damaged > 0, "there is none");
    Ok(())
}

/// Damages the block with the superblock's root; it has one copy.
fn damage_root(image: &Path) -> Result<()> {
    let root = superblock_word(image, ROOT_AT)?.to_string();
    let said = Run::new("btrfs-map-logical").args(["-l", &root]).arg(image).ok()?.stdout_text();
    let mut words = said.split_whitespace().skip_while(|word| *word != "physical");
    let at: u64 = words.nth(1).context("no physical address")?.parse()?;
    flip_byte(image, at + 200)
}

/// Runs a command that reads an earlier commit than generation `wanted`. It must say so at its end, and in its exit status.
fn old(run: Run, wanted: u64) -> Result<Finished> {
    let said = run.output()?;
    let stderr = said.stderr_text();
    let last = stderr.lines().last().unwrap_or_default();
    ensure!(said.code == Some(1), "what may be old ends as if it were not: {said}");
    for word in [
        "disk.img: generation",
        &format!("since generation {wanted} cannot be"),
        "later changes may be missing",
    ] {
        ensure!(last.contains(word), "not a word in the end of what is old: {said}");
    }
    Ok(said)
}

fn read_by_backup(bench: &Bench, image: &Path) -> Result<()> {
    damage_root(image)?;
    let run = |args: &[&str]| bench.creamery().run(args);
    let (kernel, point) = (bench.scratch.file("kernel"), bench.scratch.dir("point")?);
    ensure!(LoopMount::mount(image, &kernel, "ro").is_err(), "Linux reads it without a word");
    let mut linux = LoopMount::mount(image, &kernel, "ro,rescue=usebackuproot")?;
    let wanted = Walk::take(linux.dir())?;
    // It complains of the damage.
    ensure!(!linux.unmount_and_tell()?.is_empty(), "Linux sees no damage");
    let note = ["cannot be used", "is shown", "backup"];
    expect_untouched(image, || {
        let words = ["checksum", "disk.img"];
        expect_refusal(run(&["ls"]).arg(inside(image, "/")), &words)?;
        expect_refusal(run(&["mount", "-o", "ro"]).arg(image).arg(&point), &words)?;
        let listed = run(&["ls", "--usebackuproot"]).arg(inside(image, "/")).ok()?;
        ensure!(listed.stdout_text().contains("small"), "{listed}");
        for word in note {
            ensure!(listed.stderr_text().contains(word), "not a word of what is shown: {listed}");
        }
        let generation = superblock_word(image, GENERATION_AT)?;
        let said = old(run(&["cat", "--usebackuproot"]).arg(inside(image, "/small")), generation)?;
        ensure!(said.stdout == b"first", "{said}");
        let said = old(run(&["cp", "--rescue", "all"]).arg(inside(image, "/small")).arg("-"), generation)?;
        ensure!(said.stdout == b"first", "{said}");
        let (copy, archive) = (bench.scratch.file("copy"), bench.scratch.file("archive.tar"));
        old(run(&["cp", "-a", "--usebackuproot"]).arg(inside(image, "/folder")).arg(&copy), generation)?;
        old(
            run(&["tar", "-c", "--usebackuproot", "-f"]).arg(&archive).arg(inside(image, "/folder")),
            generation,
        )?;
        let restored = bench.scratch.dir("restored")?;
        old(run(&["restore", "--rescue", "usebackuproot"]).args([image, &restored]), generation)?;
        ensure!(std::fs::read(restored.join("folder/first"))?.len() == 100_000, "not restored");
        ensure!(std::fs::read(copy.join("first"))? == vec![b'1'; 100_000], "another content");
        for options in ["ro,rescue=usebackuproot", "ro,usebackuproot", "ro,rescue=all"] {
            let mount = FuseMount::mount(bench.creamery(), image, &point, options)?;
            let found = Walk::take(mount.dir())?;
            mount.unmount()?;
            expect_same(
                options,
                &wanted,
                &found,
                &Compare { ctime: true, btime: true, ..Compare::default() },
            )?;
        }
        for writing in ["usebackuproot", "rescue=usebackuproot"] {
            expect_refusal(run(&["mount", "-o", writing]).arg(image).arg(&point), &["usebackuproot", "ro"])?;
        }
        expect_refusal(run(&["mkdir", "--usebackuproot"]).arg(inside(image, "/new")), &["can only be read"])
    })
}
