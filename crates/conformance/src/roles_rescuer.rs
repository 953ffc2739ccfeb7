//! The role of a rescuer, in the order of docs/use/rescue.md: an image with three kinds of damage, from which all whole data is rescued.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::walk::{Compare, Walk, expect_same};
use creamery_testkit::{LoopMount, Random, Run};

use crate::support::{JUDGED, expect_refusal, expect_untouched, flip_byte, inside, mkfs_empty};
use crate::tree_log::superblock_word;

pub(crate) fn cases() -> Vec<Case> {
    vec![Case::new("roles/rescuer", &JUDGED, rescuer)]
}

const SECTOR: usize = 4096;
/// The sector of the large file that is damaged.
const HIT: usize = 40;
/// Device offsets of the superblock's label, and of the root tree's address.
const LABEL_AT: u64 = 0x10000 + 300;
const ROOT_AT: u64 = 0x10000 + 80;

/// The image, a copy of its files as of the commit before the last, and the content of the large file.
fn image_and_copy(bench: &Bench) -> Result<(PathBuf, PathBuf, Vec<u8>)> {
    let (image, copy) = (bench.scratch.file("disk.img"), bench.scratch.dir("as-it-was")?);
    mkfs_empty(bench.creamery(), &["-m", "single"], "256M", &image)?;
    let large = Random::new(21).bytes(100 * SECTOR);
    let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "nodiscard,commit=300")?;
    let home = mount.dir().join("home");
    fs::create_dir_all(home.join("mail/inbox"))?;
    fs::create_dir_all(home.join("photos"))?;
    for number in 0..200 {
        fs::write(home.join(format!("mail/inbox/{number}")), format!("letter {number}"))?;
    }
    fs::write(home.join("photos/wedding"), &large)?;
    fs::hard_link(home.join("photos/wedding"), home.join("photos/the-best"))?;
    Run::new("sync").arg("-f").arg(mount.dir()).ok()?;
    Run::new("cp").arg("-a").arg(home).arg(&copy).ok()?;
    fs::write(mount.dir().join("last-minute"), "written last")?;
    mount.unmount()?;
    Ok((image, copy, large))
}

fn damage(image: &Path, large: &[u8]) -> Result<()> {
    let bytes = fs::read(image)?;
    let sector = &large[HIT * SECTOR..(HIT + 1) * SECTOR];
    let at = bytes.chunks(SECTOR).position(|found| found == sector).context("the sector is nowhere")?;
    // Metadata has one copy, at its logical addresses.
    flip_byte(image, superblock_word(image, ROOT_AT)? + 200)?;
    flip_byte(image, LABEL_AT)?;
    flip_byte(image, (at * SECTOR) as u64)
}

fn rescuer(bench: &Bench) -> Result<()> {
    let (image, as_it_was, large) = image_and_copy(bench)?;
    let names = bench.creamery().run(["check", "--check-data-csum"]).arg(&image).ok()?;
    ensure!(names.stdout_text().contains("0 errors"), "{names}");
    damage(&image, &large)?;
    expect_untouched(&image, || {
        look(bench, &image)?;
        take_what_there_is(bench, &image, &as_it_was)?;
        take_it_as_it_is(bench, &image, &large)
    })?;
    keep_superblocks(bench, &image)
}

/// Finds the damage: not only the first superblock, as that is read past.
fn look(bench: &Bench, image: &Path) -> Result<()> {
    let run = |args: &[&str]| bench.creamery().run(args);
    ensure!(LoopMount::mount(image, &bench.scratch.file("kernel"), "ro").is_err(), "Linux mounts it");
    expect_refusal(run(&["ls"]).arg(inside(image, "/")), &["reading the tree block", "checksum mismatch"])?;
    let checked = run(&["check"]).arg(image).output()?;
    ensure!(checked.code != Some(0), "{checked}");
    let roots = run(&["rescue", "find-root"]).arg(image).ok()?.stdout_text();
    ensure!(roots.contains("seems good"), "{roots}");
    let listed = run(&["ls", "--rescue", "usebackuproot"]).arg(inside(image, "/")).ok()?;
    ensure!(listed.stdout_text() == "home\n", "{listed}");
    for words in ["superblock at 65536 is damaged", "a backup of the superblock's leads to"] {
        ensure!(listed.stderr_text().contains(words), "not a word of {words}: {listed}");
    }
    Ok(())
}

/// Rescues everything but one sector, which is named.
fn take_what_there_is(bench: &Bench, image: &Path, as_it_was: &Path) -> Result<()> {
    let out = bench.scratch.dir("out")?;
    let copied = bench.creamery().run(["cp", "-a", "--rescue", "usebackuproot", "--ignore-errors"]);
    let copied = copied.arg(inside(image, "/home")).arg(&out).output()?;
    ensure!(copied.code == Some(1), "{copied}");
    let lost = format!("/home/photos/the-best: {SECTOR} bytes from {} on are lost", HIT * SECTOR);
    let or = lost.replace("the-best", "wedding");
    let said = copied.stderr_text();
    ensure!(said.contains(&lost) || said.contains(&or), "{copied}");
    ensure!(said.contains("checksum mismatch") && said.contains("later changes may be missing"), "{copied}");
    // Only that sector is missing.
    let photo = as_it_was.join("home/photos/wedding");
    let mut wanted = fs::read(&photo)?;
    wanted[HIT * SECTOR..(HIT + 1) * SECTOR].fill(0);
    ensure!(fs::read(out.join("home/photos/wedding"))? == wanted, "other bytes than zeros are wrong");
    let mtime = fs::metadata(&photo)?.modified()?;
    fs::write(&photo, &wanted)?;
    fs::File::options().write(true).open(&photo)?.set_modified(mtime)?;
    let compare = Compare { holes: false, ..Compare::default() };
    let (wanted, found) = (Walk::take(&as_it_was.join("home"))?, Walk::take(&out.join("home"))?);
    expect_same("what came out", &wanted, &found, &compare)
}

/// A damaged sector can be kept instead of none.
fn take_it_as_it_is(bench: &Bench, image: &Path, large: &[u8]) -> Result<()> {
    let cat = bench.creamery().run(["cat", "--rescue", "usebackuproot:idatacsums"]);
    let cat = cat.arg(inside(image, "/home/photos/wedding")).output()?;
    // It is the last commit but one.
    ensure!(cat.code == Some(1) && cat.stderr_text().contains("later changes may be missing"), "{cat}");
    let wrong: Vec<_> = (0..large.len()).filter(|at| cat.stdout.get(*at) != Some(&large[*at])).collect();
    ensure!(wrong == [HIT * SECTOR] && cat.stdout.len() == large.len(), "other bytes are wrong: {wrong:?}");
    Ok(())
}

/// The whole superblock leads to a damaged root tree, so it replaces no other one, as with btrfs-progs. Everything can be read as before.
fn keep_superblocks(bench: &Bench, image: &Path) -> Result<()> {
    let recover = |program: Run| program.args(["rescue", "super-recover", "-y"]).arg(image).output();
    expect_untouched(image, || {
        let refused = recover(bench.creamery().run([""; 0]))?;
        ensure!(refused.code == Some(1) && refused.stderr_text().contains("usable trees"), "{refused}");
        let theirs = recover(Run::new("btrfs"))?;
        ensure!(theirs.code != Some(0) && theirs.code != Some(2), "{theirs}");
        Ok(())
    })?;
    let listed = bench.creamery().run(["ls", "--rescue", "all"]).arg(inside(image, "/home")).ok()?;
    ensure!(listed.stdout_text() == "mail\nphotos\n", "{listed}");
    Ok(())
}
