//! Every mount option of Linux' Btrfs, held against what Linux does with it: what it takes is taken here, what it refuses is refused, and
//! what differs is listed with its reason.

use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, LoopMount, Run, btrfs_check, until};

use crate::support::{MOUNTED, inside, judge_mount, mkfs_empty, stats};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("mount/options-as-on-linux", &MOUNTED, as_on_linux),
        Case::new("mount/subvol-beside-subvolid", &MOUNTED, subvol_beside_subvolid),
        Case::new("mount/locks-found-taken-are-counted", &MOUNTED, locks_found_taken),
    ]
}

/// With `lockstats`, and only then.
fn locks_found_taken(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let work = |dir: &Path, round: u32| -> Result<()> {
        std::thread::scope(|scope| {
            let makes = |thread: u32| {
                move || {
                    (0..50).try_for_each(|file| {
                        std::fs::write(dir.join(format!("{round}-{thread}-{file}")), b"some data")
                    })
                }
            };
            let threads: Vec<_> = (0..8).map(|thread| scope.spawn(makes(thread))).collect();
            threads.into_iter().try_for_each(|thread| Ok(thread.join().expect("it ends well")?))
        })
    };
    let found_taken = |dir: &Path| -> Result<usize> {
        let told = stats(bench, dir)?;
        Ok(told["filesystem"]["contention"].as_array().context("no counts")?.len())
    };
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("without"), "")?;
    work(mount.dir(), 0)?;
    ensure!(found_taken(mount.dir())? == 0, "nobody asked for it");
    mount.unmount()?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("with"), "lockstats")?;
    let mut round = 0;
    until("a thread to find a lock taken", || {
        round += 1;
        work(mount.dir(), round)?;
        Ok(found_taken(mount.dir())? > 0)
    })?;
    let said = bench.creamery().run(["stats", "--all"]).arg(mount.dir()).ok()?.stdout;
    ensure!(String::from_utf8(said)?.contains("Locks found taken"), "stats --all leaves them out");
    mount.unmount()
}

/// Taken by both, each by itself.
const TAKEN: [&str; 100] = [
    "acl",
    "noacl",
    "autodefrag",
    "noautodefrag",
    "barrier",
    "nobarrier",
    "clear_cache",
    "commit=5",
    "commit=0",
    "commit=0x1e",
    "max_inline=0x800",
    "compress",
    "compress=zlib",
    "compress=zlib:9",
    "compress=zlib:0",
    "compress=lzo",
    "compress=zstd:15",
    "compress=zstd:-5",
    "compress=no",
    "compress=none",
    "compress-force",
    "compress-force=zstd",
    "datacow",
    "nodatacow",
    "datasum",
    "nodatasum",
    "degraded",
    "discard",
    "discard=sync",
    "discard=async",
    "nodiscard",
    "enospc_debug",
    "noenospc_debug",
    "fatal_errors=bug",
    "fatal_errors=panic",
    "flushoncommit",
    "noflushoncommit",
    "max_inline=4k",
    "max_inline=0",
    "metadata_ratio=3",
    "ro,norecovery",
    "rescan_uuid_tree",
    "ro,rescue=usebackuproot",
    "ro,usebackuproot",
    "ro,rescue=nologreplay",
    "ro,rescue=all",
    "ro,rescue=ignorebadroots",
    "ro,rescue=ibadroots",
    "ro,rescue=ignoredatacsums",
    "ro,rescue=idatacsums",
    "ro,rescue=ignoremetacsums",
    "ro,rescue=imetacsums",
    "ro,rescue=ignoresuperflags",
    "ro,rescue=isuperflags",
    "ro,rescue=ibadroots,rescue=idatacsums",
    "skip_balance",
    "space_cache=v2",
    "ssd",
    "ssd_spread",
    "nossd",
    "nossd_spread",
    "subvol=/",
    "subvolid=5",
    "subvolid=0",
    "subvolid=0x5",
    "thread_pool=4",
    "treelog",
    "notreelog",
    "user_subvol_rm_allowed",
    "noatime",
    "relatime",
    "strictatime",
    "nodiratime",
    "lazytime",
    "nolazytime",
    "sync",
    "async",
    "dirsync",
    "mand",
    "nomand",
    "iversion",
    "noiversion",
    "ro",
    "rw",
    "nosuid",
    "suid",
    "nodev",
    "dev",
    "noexec",
    "exec",
    "atime",
    "diratime",
    "norelatime",
    "nostrictatime",
    "defaults",
    "nofail",
    "_netdev",
    "noauto",
    "x-systemd.automount",
    "X-anything",
];

/// Refused by both.
const REFUSED: [&str; 38] = [
    "fatal_errors=x",
    "commit=-1",
    "commit=08",
    "subvolid=0y5",
    "subvol=",
    "subvol",
    "thread_pool=0",
    "thread_pool=-1",
    "nologreplay",
    "norecovery",
    "rescue=nologreplay",
    "rescue=all",
    "rescue=ibadroots",
    "rescue=idatacsums",
    "rescue=imetacsums",
    "rescue=isuperflags",
    "ro,rescue=x",
    "ro,rescue=",
    "ro,rescue=usebackuproot:nologreplay",
    "recovery",
    "ro,recovery",
    "nouser_subvol_rm_allowed",
    "inode_cache",
    "noinode_cache",
    "check_int",
    "check_int_data",
    "check_int_print_mask=1",
    "subvolrootid=5",
    "alloc_start=1G",
    "ratio=3",
    "noclear_cache",
    "norescan_uuid_tree",
    "nodegraded",
    "noskip_balance",
    "nousebackuproot",
    "space_cache=v3",
    "quota",
    "noquota",
];

/// Taken here, and not by Linux.
const TAKEN_HERE: [(&str, &str); 5] = [
    ("ro,nologreplay", "Linux 6.18 has norecovery and rescue=nologreplay for it; btrfs(5) has this one, too"),
    ("space_cache", "Linux has the old cache nowhere where there is a block group tree"),
    ("space_cache=v1", "the same"),
    ("nospace_cache", "the same"),
    ("device=/dev/none", "a filesystem of one device needs no other"),
];

/// Taken by Linux, and not here.
const REFUSED_HERE: [(&str, &str); 3] = [
    ("rescue=usebackuproot", "Linux writes over what an earlier commit left"),
    ("usebackuproot", "the same"),
    ("max_inline=-1", "Linux takes it for 0"),
];

/// Linux takes these where it was built for debugging.
const OF_DEBUGGING: [&str; 2] = ["fragment=data", "ref_verify"];

fn as_on_linux(bench: &Bench) -> Result<()> {
    let (image, kernel) = (bench.scratch.file("disk.img"), bench.scratch.file("kernel"));
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let helper = bench.scratch.file("mount.fuse.creamery");
    symlink(bench.creamery().path(), &helper)?;
    let point = bench.scratch.dir("point")?;
    // As mount(8) calls it, and without the mount.
    let here = |option: &str| Run::new(&helper).arg(&image).arg(&point).args(["-f", "-o", option]).output();
    let linux = |option: &str| -> Result<bool> {
        match LoopMount::mount(&image, &kernel, option) {
            // What it says of options meanwhile is its own affair.
            Ok(mut mount) => mount.unmount_and_tell().map(|_| true),
            Err(_) => Ok(false),
        }
    };
    let taken_here = TAKEN_HERE.map(|(option, _)| (option, false, true));
    let refused_here = REFUSED_HERE.map(|(option, _)| (option, true, false));
    let alike = TAKEN
        .map(|option| (option, true, true))
        .into_iter()
        .chain(REFUSED.map(|option| (option, false, false)));
    for (option, by_linux, by_us) in alike.chain(taken_here).chain(refused_here) {
        ensure!(linux(option)? == by_linux, "{option}: Linux does otherwise");
        let said = here(option)?;
        ensure!((said.code == Some(0)) == by_us, "{option}: {said}");
        expect_reason(option, by_us, &said.stderr_text())?;
    }
    for option in OF_DEBUGGING {
        let said = here(option)?;
        ensure!(said.code != Some(0), "{option}: {said}");
        expect_reason(option, false, &said.stderr_text())?;
    }
    btrfs_check(&image)
}

/// Options that name one subvolume twice are taken, options that contradict each other or name none refused; numbers have the bases that Linux takes.
fn subvol_beside_subvolid(bench: &Bench) -> Result<()> {
    const OTHER: &str = "does not match subvolid=";
    const OPTIONS: [(&str, std::result::Result<&str, &str>); 10] = [
        ("subvol=a", Ok("a")),
        ("subvolid=0x100", Ok("a")),
        ("subvolid=0401", Ok("b")),
        ("subvol=a,subvolid=256", Ok("a")),
        ("subvolid=257,subvol=/b", Ok("b")),
        ("subvol=/,subvolid=0", Ok("top")),
        ("subvol=a,subvolid=257", Err(OTHER)),
        ("subvol=b,subvolid=5", Err(OTHER)),
        ("subvol=/,subvolid=256", Err(OTHER)),
        ("subvolid=256,subvol=", Err("expected a path")),
    ];
    let (image, point) = (bench.scratch.file("disk.img"), bench.scratch.file("point"));
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    for name in ["a", "b"] {
        bench.creamery().run(["subvolume", "create"]).arg(inside(&image, &format!("/{name}"))).ok()?;
    }
    let kernel = LoopMount::mount(&image, &point, "")?;
    std::fs::write(kernel.dir().join("mark"), "top")?;
    ["a", "b"].into_iter().try_for_each(|name| std::fs::write(kernel.dir().join(name).join("mark"), name))?;
    kernel.unmount()?;
    for (options, wanted) in OPTIONS {
        let mark = |dir: &Path| std::fs::read_to_string(dir.join("mark")).ok();
        let linux = match LoopMount::mount(&image, &point, options) {
            Ok(mut mount) => {
                let mark = mark(mount.dir());
                mount.unmount_and_tell()?;
                mark
            }
            Err(_) => None,
        };
        let ours = match FuseMount::mount(bench.creamery(), &image, &point, options) {
            Ok(mount) => {
                let mark = mark(mount.dir());
                mount.unmount()?;
                mark
            }
            Err(error) => {
                let said = format!("{error:#}");
                ensure!(wanted.is_err_and(|why| said.contains(why)), "{options}: {said}");
                None
            }
        };
        ensure!(linux.as_deref() == wanted.ok(), "{options}: Linux shows {linux:?}");
        ensure!(ours == linux, "{options}: {ours:?}, on Linux {linux:?}");
    }
    // As in Linux' system call, number 0 is the top level.
    bench.creamery().run(["subvolume", "set-default", "256"]).arg(&image).ok()?;
    bench.creamery().run(["subvolume", "set-default", "0"]).arg(&image).ok()?;
    let said = bench.creamery().run(["subvolume", "get-default"]).arg(&image).ok()?.stdout_text();
    ensure!(said == "ID 5 (FS_TREE)\n", "{said}");
    let mount = FuseMount::mount(bench.creamery(), &image, &point, "")?;
    bench.creamery().run(["subvolume", "set-default", "257"]).arg(mount.dir()).ok()?;
    bench.creamery().run(["subvolume", "set-default", "0"]).arg(mount.dir()).ok()?;
    let said = bench.creamery().run(["subvolume", "get-default"]).arg(mount.dir()).ok()?.stdout_text();
    ensure!(said == "ID 5 (FS_TREE)\n", "{said}");
    let missing = mount.dir().join("nothing");
    let said = bench.creamery().run(["subvolume", "show"]).arg(&missing).output()?;
    let wanted = format!("{}: no such file or directory", missing.display());
    ensure!(said.code == Some(1) && said.stderr_text().contains(&wanted), "{said}");
    judge_mount(bench, &image, mount)
}

/// A refusal is one line that names the option.
fn expect_reason(option: &str, is_taken: bool, said: &str) -> Result<()> {
    let word = option.split(',').next_back().unwrap_or(option);
    let name = word.trim_start_matches("no").split('=').next().unwrap_or(word);
    ensure!(is_taken || said.contains(name) && said.lines().count() == 1, "{option}: {said}");
    Ok(())
}
