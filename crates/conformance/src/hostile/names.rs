//! Images whose names lead elsewhere: a copy to the host writes only below the named folder, a listing shows no such name, and `check`
//! reports it with a number.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{LoopMount, Run};

use crate::hostile::Victim;
use crate::item_types::{DIR_INDEX, DIR_ITEM, INODE_REF};
use crate::support::{JUDGED, MOUNTED, expect_refusal, inside, mkfs_from};

const SECRET: &[u8] = b"nobody touches this";
/// All items that hold a name: they agree.
const ALL: [u8; 3] = [INODE_REF, DIR_ITEM, DIR_INDEX];

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("hostile/names-that-lead-elsewhere", &MOUNTED, names),
        Case::new("hostile/what-linux-does-with-such-a-name", &JUDGED, linux),
        Case::new("hostile/a-link-and-a-folder-of-one-name", &JUDGED, link_and_folder),
    ]
}

/// An image with a file in `/d` that is called `filler`, and a secret on the host.
struct Trap {
    image: PathBuf,
    out: PathBuf,
    secret: PathBuf,
}

impl Trap {
    fn new(bench: &Bench, filler: &[u8]) -> Result<Self> {
        let source = bench.scratch.dir("source")?;
        std::fs::create_dir(source.join("d"))?;
        std::fs::write(source.join("d").join(os(filler)), b"from the image")?;
        std::fs::write(source.join("harmless"), b"harmless")?;
        let image = bench.scratch.file("evil.img");
        mkfs_from(bench.creamery(), &["-b", "256M", "--nodesize", "16k"], &source, &image)?;
        std::fs::remove_dir_all(&source)?;
        let secret = bench.scratch.dir("victim")?.join("key");
        std::fs::write(&secret, SECRET)?;
        let out = bench.scratch.dir("out")?;
        Ok(Self { image, out, secret })
    }

    /// Checks that neither the secret nor anything beside `out` was changed.
    fn expect_untouched(&self) -> Result<()> {
        ensure!(std::fs::read(&self.secret)? == SECRET, "a file of the host was replaced");
        let victim = self.secret.parent().context("it has a folder")?;
        ensure!(std::fs::read_dir(victim)?.count() == 1, "something was made in a folder of the host");
        Ok(())
    }

    fn remove(self) -> Result<()> {
        std::fs::remove_file(&self.image)?;
        std::fs::remove_dir_all(&self.out)?;
        Ok(std::fs::remove_dir_all(self.secret.parent().context("it has a folder")?)?)
    }
}

fn os(name: &[u8]) -> &std::ffi::OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(name)
}

/// A harmless name of equal length.
fn filler(name: &[u8]) -> Vec<u8> {
    vec![b'x'; name.len()]
}

/// Each command that reads names refuses the image, and writes nothing.
fn expect_refusals(bench: &Bench, trap: &Trap) -> Result<()> {
    let at = inside(&trap.image, "/d");
    for options in [&["-r"][..], &["-a"], &["-rv"]] {
        let copy = bench.creamery().run(["cp"]).args(options).arg(&at).arg(&trap.out);
        expect_refusal(copy, &["name", "found at byte"])?;
    }
    for words in [&["ls"][..], &["ls", "-lR"], &["ls", "--json"]] {
        let finished = bench.creamery().run(words).arg(&at).output()?;
        ensure!(finished.code == Some(1), "{finished}");
        ensure!(!finished.stdout_text().contains("key"), "the name was listed: {finished}");
    }
    let checked = bench.creamery().run(["check", "--json"]).arg(&trap.image).output()?;
    ensure!(checked.code == Some(4), "{checked}");
    ensure!(checked.stdout_text().contains("218"), "no finding for the name: {checked}");
    let point = bench.scratch.dir("point")?;
    let mount = bench.creamery().run(["mount", "-o", "ro"]).arg(&trap.image).arg(&point);
    expect_refusal(mount, &["name", "found at byte"])?;
    trap.expect_untouched()
}

fn names(bench: &Bench) -> Result<()> {
    let absolute = bench.scratch.path().join("victim/key").into_os_string().into_encoded_bytes();
    let names: [&[u8]; 6] = [b"../../victim/key", &absolute, b"a/../../../victim/key", b"key\0", b"..", b"."];
    for name in names {
        for kinds in [&[DIR_INDEX][..], &[INODE_REF], &[DIR_INDEX, INODE_REF], &ALL] {
            let shown = || format!("'{}' in items of types {kinds:?}", name.escape_ascii());
            let trap = Trap::new(bench, &filler(name))?;
            let mut victim = Victim::new(trap.image.clone())?;
            let changed = victim.rename(kinds, &filler(name), name)?;
            ensure!(changed == kinds.len(), "{changed} names were changed: {}", shown());
            drop(victim);
            expect_refusals(bench, &trap).with_context(shown)?;
            trap.remove()?;
        }
    }
    Ok(())
}

/// Linux mounts such an image: its checker of tree blocks accepts the name, and reading the directory ends with EIO at the entry. We refuse
/// the whole block, so we refuse everything that Linux refuses.
fn linux(bench: &Bench) -> Result<()> {
    let name = b"../../victim/key";
    let trap = Trap::new(bench, &filler(name))?;
    Victim::new(trap.image.clone())?.rename(&[DIR_INDEX, INODE_REF], &filler(name), name)?;
    let mut mount = LoopMount::mount(&trap.image, &bench.scratch.file("judge"), "ro,noatime")?;
    let listed = Run::new("ls").arg(mount.dir().join("d")).output()?;
    ensure!(listed.code != Some(0), "Linux lists it: {listed}");
    ensure!(listed.stderr_text().contains("Input/output error"), "{listed}");
    mount.unmount_and_tell()?;
    let copied = bench.creamery().run(["cp", "-r"]).arg(inside(&trap.image, "/d")).arg(&trap.out).output()?;
    ensure!(copied.code != Some(0), "Linux refuses the name, and we do not: {copied}");
    trap.expect_untouched()
}

/// Each name by itself is valid: first a link to a folder of the host, then a folder with the link's name and a file in it.
fn link_and_folder(bench: &Bench) -> Result<()> {
    let source = bench.scratch.dir("source")?;
    symlink("../../victim", prepared(&source)?.join("aa"))?;
    std::fs::create_dir(source.join("d/ab"))?;
    std::fs::write(source.join("d/ab/key"), b"from the image")?;
    let image = bench.scratch.file("evil.img");
    mkfs_from(bench.creamery(), &["-b", "256M", "--nodesize", "16k"], &source, &image)?;
    let victim = bench.scratch.dir("victim")?;
    std::fs::write(victim.join("key"), SECRET)?;
    let (out, secret) = (bench.scratch.dir("out")?, victim.join("key"));
    let trap = Trap { image, out, secret };
    let changed = Victim::new(trap.image.clone())?.rename(&[DIR_INDEX, INODE_REF], b"ab", b"aa")?;
    ensure!(changed == 2, "{changed} names were changed");
    for options in ["-r", "-a"] {
        let copied =
            bench.creamery().run(["cp", options]).arg(inside(&trap.image, "/d")).arg(&trap.out).output()?;
        ensure!(copied.code == Some(1), "{copied}");
        trap.expect_untouched()?;
    }
    // A program that unpacks an archive with both follows the link.
    let archive = trap.out.join("d.tar");
    let options = ["tar", "-c", "--ignore-errors", "--rescue=all", "-f"];
    let written = bench.creamery().run(options).arg(&archive).arg(inside(&trap.image, "/d")).output()?;
    ensure!(written.code == Some(1) && written.stderr_text().contains("duplicate name"), "{written}");
    let listed = bench.creamery().run(["tar", "-t", "-f"]).arg(&archive).ok()?.stdout_text();
    ensure!(listed.lines().filter(|line| line.starts_with("d/aa")).count() == 1, "{listed}");
    Ok(())
}

fn prepared(source: &Path) -> Result<PathBuf> {
    let dir = source.join("d");
    std::fs::create_dir(&dir)?;
    Ok(dir)
}
