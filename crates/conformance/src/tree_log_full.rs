//! A log that was acknowledged when there was no room left for metadata: it is replayed all the same, by Linux and by us.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;

use anyhow::{Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, LoopMount, Run, btrfs_check};

use crate::support::MOUNTED;
use crate::tree_log::{LOG_ROOT_AT, superblock_word};

pub(crate) fn cases() -> Vec<Case> {
    vec![Case::new("log/of-a-full-filesystem", &MOUNTED, of_a_full_filesystem)]
}

const NEW: &[u8] = b"NEW";
const AT: usize = 5;
const LEN: usize = 1900;
const OVERWRITTEN: usize = 4;

fn of_a_full_filesystem(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    File::create_new(&image)?.set_len(16 << 20)?;
    Run::new("mkfs.btrfs").args(["-q", "-M"]).arg(&image).ok()?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("ours"), "")?;
    let path = |number: usize| mount.dir().join(format!("file-{number}"));
    // Small files lie in the trees.
    let mut count = 0;
    while File::create(path(count))
        .and_then(|mut file| file.write_all(&[b'x'; LEN]).and(file.sync_all()))
        .is_ok()
    {
        count += 1;
    }
    ensure!(count > 1000, "{count} files are no full filesystem");
    bench.creamery().run(["sync"]).arg(mount.dir()).ok()?;
    let (mut acknowledged, mut copies) = (Vec::new(), Vec::new());
    for number in (0..OVERWRITTEN).map(|number| 7 * number) {
        let file = File::options().write(true).open(path(number))?;
        if file.write_all_at(NEW, AT as u64).and_then(|()| file.sync_all()).is_ok() {
            acknowledged.push(number);
        }
        let copy = bench.scratch.file(&format!("copy-{number}.img"));
        std::fs::copy(&image, &copy)?;
        copies.push((copy, acknowledged.clone()));
    }
    mount.unmount()?;
    let mut logs = 0;
    for (copy, acknowledged) in &copies {
        logs += usize::from(superblock_word(copy, LOG_ROOT_AT)? != 0);
        let theirs = bench.scratch.file("theirs.img");
        std::fs::copy(copy, &theirs)?;
        // Opened for writing, which replays it.
        FuseMount::mount(bench.creamery(), copy, &bench.scratch.file("ours"), "")?.unmount()?;
        for replayed in [copy, &theirs] {
            let linux = LoopMount::mount(replayed, &bench.scratch.file("kernel"), "")?;
            for number in acknowledged {
                let found = std::fs::read(linux.dir().join(format!("file-{number}")))?;
                ensure!(
                    found.len() == LEN && &found[AT..AT + NEW.len()] == NEW,
                    "{number} of {acknowledged:?}"
                );
            }
            linux.unmount()?;
            btrfs_check(replayed)?;
        }
        std::fs::remove_file(theirs)?;
    }
    ensure!(logs > 0, "no fsync of {acknowledged:?} left a log");
    Ok(())
}
