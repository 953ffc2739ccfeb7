//! Every reading command goes on past a damaged extent tree with `--rescue`; and files that the host does not accept in a copy are
//! reported.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{Judge, LoopMount, Run, btrfs_check};

use crate::rescue::options::root_block;
use crate::support::{MOUNTED, expect_refusal, expect_untouched, flip_byte, inside, mkfs_empty};

pub(crate) fn cases() -> Vec<Case> {
    let with_xattrs = [&MOUNTED[..], &[Judge::Tool("setfattr")]].concat();
    vec![
        Case::new("rescue/every-reading-command", &MOUNTED, every_reading_command),
        Case::new("rescue/between-images", &MOUNTED, between_images),
        Case::new("rescue/tar-and-check", &[&MOUNTED[..], &[Judge::Tool("tar")]].concat(), tar_and_check),
        Case::new("commands/attributes-that-the-host-does-not-take", &with_xattrs, attributes_not_taken),
    ]
}

/// An image whose extent tree is damaged, and nothing else.
fn without_extents(bench: &Bench) -> Result<PathBuf> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &["-m", "single"], "256M", &image)?;
    let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "")?;
    fs::create_dir(mount.dir().join("folder"))?;
    fs::write(mount.dir().join("folder/large"), vec![7; 300_000])?;
    fs::write(mount.dir().join("folder/small"), "inline")?;
    Run::new("btrfs").args(["subvolume", "create"]).arg(mount.dir().join("below")).ok()?;
    mount.unmount()?;
    flip_byte(&image, root_block(&image, "extent tree")? + 200)?;
    Ok(image)
}

/// Commands with one image or place in it.
const COMMANDS: [(&str, &str); 20] = [
    ("ls -l", "/folder"),
    ("cat", "/folder/small"),
    ("stat", "/folder/large"),
    ("find", "/"),
    ("filesystem du", "/"),
    ("filesystem du -s --json", "/folder"),
    ("filesystem fiemap", "/folder/large"),
    ("filesystem df", ""),
    ("filesystem usage", ""),
    ("filesystem show", ""),
    ("filesystem label", ""),
    ("df", ""),
    ("subvolume list", ""),
    ("subvolume show", "/below"),
    ("subvolume get-default", ""),
    ("subvolume find-new", "/below 1"),
    ("property get", "/below ro"),
    ("property list", "/below"),
    ("inspect-internal inode-resolve 257", "/"),
    ("inspect-internal subvolid-resolve 256", ""),
];

fn every_reading_command(bench: &Bench) -> Result<()> {
    let image = without_extents(bench)?;
    expect_untouched(&image, || {
        for (words, place) in COMMANDS {
            let mut place = place.split(' ');
            let path = place.next().unwrap_or_default();
            let target = if path.is_empty() { image.clone().into_os_string() } else { inside(&image, path) };
            let run = |rescue: &[&str]| {
                let run = bench.creamery().run(words.split(' ')).args(rescue).arg(&target);
                run.args(place.clone())
            };
            expect_refusal(run(&[]), &["disk.img", "content is damaged"])?;
            let said = run(&["--rescue", "ibadroots"]).ok()?;
            let is_quiet = said.stdout.is_empty();
            ensure!(!is_quiet || words == "property list", "{words} says nothing: {said}");
            ensure!(said.stderr_text().contains("is left out"), "{words}: not a word of what is left out");
        }
        Ok(())
    })?;
    // Questions about block groups and changes need more than that.
    let label = bench.creamery().run(["filesystem", "label", "--rescue", "all"]).arg(&image).arg("new");
    expect_refusal(label, &["only be read"])
}

/// The option is about the image that is read; the other image is written as usual.
fn between_images(bench: &Bench) -> Result<()> {
    let image = without_extents(bench)?;
    let other = bench.scratch.file("other.img");
    mkfs_empty(bench.creamery(), &[], "256M", &other)?;
    let cp = |words: &[&str]| bench.creamery().run(["cp", "-a"]).args(words).arg(inside(&image, "/folder"));
    expect_refusal(cp(&[]).arg(inside(&other, "/")), &["disk.img", "content is damaged"])?;
    cp(&["--rescue", "ibadroots", "--ignore-errors"]).arg(inside(&other, "/")).ok()?;
    btrfs_check(&other)?;
    let found = bench.creamery().run(["cat"]).arg(inside(&other, "/folder/large")).ok()?;
    ensure!(found.stdout == vec![7; 300_000], "another content");
    // No command writes past damage, not even data read from the same image.
    for from in [inside(&image, "/folder"), bench.scratch.path().as_os_str().to_owned()] {
        let onto = bench.creamery().run(["cp", "-a", "--rescue", "ibadroots"]).arg(from);
        expect_untouched(&image, || expect_refusal(onto.arg(inside(&image, "/copy")), &["reading only"]))?;
    }
    Ok(())
}

/// An archive has all files, and the check finds other damage.
fn tar_and_check(bench: &Bench) -> Result<()> {
    let image = without_extents(bench)?;
    let (archive, out) = (bench.scratch.file("archive.tar"), bench.scratch.dir("out")?);
    let tar = |words: &[&str]| {
        bench.creamery().run(["tar", "-c"]).args(words).arg("-f").arg(&archive).arg(inside(&image, "/"))
    };
    expect_refusal(tar(&[]), &["content is damaged"])?;
    ensure!(!archive.exists(), "an archive of nothing");
    tar(&["--rescue", "ibadroots"]).ok()?;
    Run::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&out).ok()?;
    ensure!(fs::read(out.join("folder/large"))? == vec![7; 300_000], "another content");
    ensure!(fs::read(out.join("folder/small"))? == b"inline", "another content");
    // A sector of the file is damaged, too.
    let bytes = fs::read(&image)?;
    let at = bytes.chunks(4096).position(|found| found == [7; 4096]);
    flip_byte(&image, at.map_or(0, |at| at as u64 * 4096 + 9))?;
    let checked = bench.creamery().run(["check", "--check-data-csum"]).arg(&image).output()?;
    let said = format!("{}{}", checked.stdout_text(), checked.stderr_text());
    ensure!(checked.code == Some(4), "{checked}");
    for words in ["tree=2", "of /folder/large"] {
        ensure!(said.contains(words), "nothing says {words:?}: {checked}");
    }
    Ok(())
}

/// A filesystem of the host, mounted until drop.
pub(crate) struct Host<'a>(&'a Path);

impl<'a> Host<'a> {
    pub(crate) fn mount(kind: &str, options: &str, dir: &'a Path) -> Result<Self> {
        Run::new("mount").args(["-t", kind, "-o", options, "none"]).arg(dir).ok()?;
        Ok(Self(dir))
    }
}

impl Drop for Host<'_> {
    fn drop(&mut self) {
        let _ = Run::new("umount").arg(self.0).ok();
    }
}

fn attributes_not_taken(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "128M", &image)?;
    let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "")?;
    fs::create_dir(mount.dir().join("folder"))?;
    for name in ["folder/file", "folder/other"] {
        fs::write(mount.dir().join(name), "content")?;
        Run::new("setfattr").args(["-n", "user.small", "-v", "1"]).arg(mount.dir().join(name)).ok()?;
    }
    let large = "x".repeat(15_000);
    Run::new("setfattr")
        .args(["-n", "user.large", "-v", &large])
        .arg(mount.dir().join("folder/file"))
        .ok()?;
    mount.unmount()?;
    let dir = bench.scratch.dir("host")?;
    let copies = [&["cp", "-a"][..], &["restore", "-x"]];
    for words in copies {
        let place = if words[0] == "cp" { inside(&image, "/.") } else { image.clone().into_os_string() };
        let copied = || bench.creamery().run(words).arg(&place).arg(&dir).output();
        let is_there = || fs::read(dir.join("folder/file")).is_ok_and(|found| found == b"content");
        {
            // ramfs has no extended attributes at all.
            let _host = Host::mount("ramfs", "mode=755", &dir)?;
            let said = copied()?;
            let text = said.stderr_text();
            ensure!(said.code == Some(0) && text.lines().count() == 1 && is_there(), "{said}");
            let first = text.contains("3 extended attributes do not come along; the first: ");
            ensure!(first && text.contains("/folder/"), "{said}");
        }
        // This tmpfs has room for few files.
        let _host = Host::mount("tmpfs", "nr_inodes=12", &dir)?;
        let said = copied()?;
        ensure!(said.code == Some(1) && is_there(), "{said}");
        let text = said.stderr_text();
        ensure!(text.contains("/folder/file: extended attribute user.large: "), "{said}");
        ensure!(text.contains("1 extended attribute does not come along, each named above"), "{said}");
        let small = Run::new("getfattr").args(["-n", "user.small", "--only-values"]);
        let small = small.arg(dir.join("folder/file")).ok()?;
        ensure!(small.stdout == b"1", "{small}");
    }
    Ok(())
}
