//! Subvolumes side by side at the top level, one of which is the default: where paths begin, and which names are not made there.

use std::path::Path;

use anyhow::{Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{LoopMount, Run, btrfs_check};

use crate::support::{JUDGED, expect_failure, expect_refusal, inside};

pub(crate) fn cases() -> Vec<Case> {
    vec![Case::new("subvolumes/beside-the-default", &JUDGED, beside_the_default)]
}

/// Commands that would make a name in `@` that a subvolume beside it has. `IMG` is the image, `DIR` a directory of the host.
const REFUSED: [&str; 10] = [
    "cp -a DIR IMG:/@home/",
    "cp DIR/file IMG:/@home",
    "mkdir IMG:/@home",
    "mkdir -p IMG:/@home/x/y",
    "touch IMG:/@home",
    "subvolume create IMG:/@home",
    "subvolume snapshot IMG:/ IMG:/@home",
    "mv IMG:/etc IMG:/@home",
    "cp -a ROOT/. IMG:/",
    "tar -x -f ROOT/../root.tar -C IMG:/",
];

/// Commands at the top level, and one that says where it begins.
const DONE: [&str; 9] = [
    "cp -a DIR IMG:<FS_TREE>/@home/",
    "mkdir -p IMG:<FS_TREE>/@home/x/y",
    "subvolume snapshot -r IMG:/ IMG:<FS_TREE>/@before",
    "mv IMG:<FS_TREE>/@home/x IMG:<FS_TREE>/@home/z",
    "ln -s /@home/z/y IMG:<FS_TREE>/link",
    "cp DIR/file IMG:<FS_TREE>/link/copy",
    "mkdir IMG:/plain",
    "ls IMG:<FS_TREE>/@home/../@before",
    "mkdir --subvolid 256 IMG:/@home",
];

fn beside_the_default(bench: &Bench) -> Result<()> {
    let (image, source) = (bench.scratch.file("disk.img"), bench.scratch.dir("rootfs")?);
    for dir in ["@/etc", "@home"] {
        std::fs::create_dir_all(source.join(dir))?;
    }
    let dir = bench.scratch.dir("dir")?;
    std::fs::write(dir.join("file"), "content")?;
    let mkfs = bench.creamery().run(["mkfs", "-b", "200M", "-u", "default:@", "-u", "@home", "--rootdir"]);
    let said = mkfs.arg(&source).arg(&image).ok()?.stdout_text();
    ensure!(said.contains("<FS_TREE>") && said.contains("Default      @,"), "{said}");
    let run = |words: &str| {
        let words = words.split(' ').map(|word| {
            let places = [("IMG", &image), ("DIR", &dir), ("ROOT", &source)];
            places
                .iter()
                .fold(word.to_owned(), |word, (name, path)| word.replace(name, &path.display().to_string()))
        });
        bench.creamery().run(words.collect::<Vec<_>>())
    };
    let archive = Run::new("tar").arg("-cf").arg(bench.scratch.file("root.tar"));
    archive.arg("-C").arg(&source).arg("@home").ok()?;
    for words in REFUSED {
        expect_failure(run(words), &["<FS_TREE>/@home", "default subvolume 256"])?;
    }
    expect_refusal(run("ls IMG:/@home/x"), &["<FS_TREE>/@home/x begins at the top level", "not found"])?;
    let listed = run("subvolume list IMG").ok()?;
    ensure!(listed.stderr_text().contains("<FS_TREE>/PATH begins at the top level"), "{listed}");
    for words in DONE {
        run(words).ok()?;
    }
    let read = bench.creamery().run(["cat"]).arg(inside(&image, "/nothing"));
    expect_refusal(read, &["paths begin in the default subvolume 256"])?;
    btrfs_check(&image)?;
    let kernel = LoopMount::mount(&image, &bench.scratch.file("kernel"), "ro,subvolid=5")?;
    let is_there = |path: &str| kernel.dir().join(path).symlink_metadata().is_ok();
    for path in ["@home/dir/file", "@home/z/y/copy", "@before/etc", "@/plain", "@/@home", "link"] {
        ensure!(is_there(path), "{path} is missing");
    }
    ensure!(!is_there("@before/plain") && !Path::new("@home/x").exists(), "too much");
    kernel.unmount()
}
