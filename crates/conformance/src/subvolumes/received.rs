//! A received subvolume that is made writable by force: what it is then, beside btrfs-progs.

use std::ffi::OsStr;
use std::fs::File;
use std::path::Path;

use anyhow::{Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, LoopMount, Run, allow_changes, btrfs_check};

use crate::support::{MOUNTED, expect_refusal, inside, mkfs_empty};

pub(crate) fn cases() -> Vec<Case> {
    vec![Case::new("subvolumes/received-made-writable", &MOUNTED, received)]
}

/// What makes it writable.
#[derive(Clone, Copy, Debug)]
enum MadeWritableBy {
    BtrfsProgs,
    InAnImage,
    OnLinux,
    OnOurs,
}

/// Words of the property, and whether they are followed.
type Call = (&'static [&'static str], bool);

const BY_FORCE: Call = (&["-f", "ro", "false"], true);
const CALLS: [Call; 5] = [
    (&["ro", "false"], false),
    (&["-f", "ro", "true"], true),
    BY_FORCE,
    (&["ro", "true"], true),
    (&["ro", "false"], true),
];

fn received(bench: &Bench) -> Result<()> {
    let (image, kernel) = (bench.scratch.file("disk.img"), bench.scratch.file("kernel"));
    mkfs_empty(bench.creamery(), &[], "200M", &image)?;
    let linux = LoopMount::mount(&image, &kernel, "")?;
    let script = "btrfs -q subvolume create s; echo x > s/f; btrfs -q subvolume snapshot -r s sent; mkdir in
        btrfs -q send -f stream sent; btrfs -q receive -f stream in";
    Run::new("sh").args(["-ec", script]).within(linux.dir()).ok()?;
    linux.unmount()?;
    // Writable it was made, and then somebody was killed: with -f it can be asked for again.
    let halfway = bench.scratch.file("halfway.img");
    Run::new("cp").arg(&image).arg(&halfway).ok()?;
    let linux = LoopMount::mount(&halfway, &kernel, "")?;
    allow_changes(&File::open(linux.dir().join("in/sent"))?)?;
    linux.unmount()?;
    let mut want = None;
    for (image, by, calls) in [
        (&image, MadeWritableBy::BtrfsProgs, &CALLS[..]),
        (&image, MadeWritableBy::InAnImage, &CALLS),
        (&image, MadeWritableBy::OnLinux, &CALLS),
        (&image, MadeWritableBy::OnOurs, &CALLS),
        (&halfway, MadeWritableBy::InAnImage, &[BY_FORCE]),
        (&halfway, MadeWritableBy::OnLinux, &[BY_FORCE]),
        (&halfway, MadeWritableBy::OnOurs, &[BY_FORCE]),
    ] {
        let copy = bench.scratch.file("copy.img");
        Run::new("cp").arg(image).arg(&copy).ok()?;
        change(bench, &copy, by, calls)?;
        btrfs_check(&copy)?;
        let linux = LoopMount::mount(&copy, &kernel, "")?;
        let shown = Run::new("btrfs").args(["subvolume", "show"]).arg(linux.dir().join("in/sent")).ok()?;
        std::fs::write(linux.dir().join("in/sent/g"), "y")?;
        linux.unmount()?;
        // The transaction that it was forgotten in differs, and its time.
        let is_alike = |line: &&str| !["Gen", "Receive t"].iter().any(|name| line.trim().starts_with(name));
        let shown = shown.stdout_text();
        let shown: Vec<String> = shown.lines().filter(is_alike).map(str::to_owned).collect();
        ensure!(shown.iter().any(|line| line.trim() == "Received UUID: \t\t-"), "{by:?}: {shown:?}");
        let want = want.get_or_insert_with(|| shown.clone());
        ensure!(shown == *want, "{by:?}: {shown:?} and not {want:?}");
        let tree = Run::new("btrfs").args(["inspect-internal", "dump-tree", "-t", "uuid"]).arg(&copy).ok()?;
        ensure!(!tree.stdout_text().contains("RECEIVED"), "{by:?}: {tree}");
    }
    Ok(())
}

/// Does it by this way, which has to end as it does with btrfs-progs.
fn change(bench: &Bench, image: &Path, by: MadeWritableBy, calls: &[Call]) -> Result<()> {
    let mount = bench.scratch.file("mount");
    let set = |program: &Path, place: &OsStr| -> Result<()> {
        for (words, is_done) in calls {
            let (force, words) = words.split_at(words.len() - 2);
            let call = Run::new(program).args(["property", "set"]).args(force).arg(place).args(words);
            match is_done {
                true => call.ok().map(drop)?,
                false => expect_refusal(call, &["received", "snapshot", "-f"])?,
            }
        }
        Ok(())
    };
    let ours = bench.creamery().path();
    match by {
        MadeWritableBy::InAnImage => set(ours, &inside(image, "/in/sent")),
        MadeWritableBy::OnOurs => {
            let mount = FuseMount::mount(bench.creamery(), image, &mount, "")?;
            set(ours, mount.dir().join("in/sent").as_os_str())?;
            mount.unmount()
        }
        MadeWritableBy::BtrfsProgs | MadeWritableBy::OnLinux => {
            let program = if matches!(by, MadeWritableBy::OnLinux) { ours } else { Path::new("btrfs") };
            let mount = LoopMount::mount(image, &mount, "")?;
            set(program, mount.dir().join("in/sent").as_os_str())?;
            mount.unmount()
        }
    }
}
