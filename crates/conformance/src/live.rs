//! Questions to live mounts, compared with btrfs-progs on a mount of the kernel: to that mount, and to one of ours of the same image.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, LoopMount, Run, btrfs_check, sync_filesystem};

use crate::support::{MOUNTED, expect_refusal, mkfs_empty};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("live/properties", &MOUNTED, properties),
        Case::new("live/resolve", &MOUNTED, resolve),
        Case::new("live/space", &MOUNTED, space),
        Case::new("live/disk-usage", &MOUNTED, disk_usage),
        Case::new("live/space-of-several-devices", &MOUNTED, several),
    ]
}

/// Files that share data, names of a file, and nested subvolumes, all made by Linux.
fn populate(dir: &Path) -> Result<()> {
    let at = |name: &str| dir.join(name);
    for name in ["a", "a/b", "ro"] {
        Run::new("btrfs").args(["-q", "subvolume", "create"]).arg(at(name)).ok()?;
    }
    std::fs::create_dir_all(at("d/deep"))?;
    std::fs::write(at("f"), "small")?;
    std::fs::write(at("a/x"), "small")?;
    std::fs::hard_link(at("a/x"), at("a/second name"))?;
    std::fs::write(at("big"), creamery_testkit::Random::new(7).bytes(3 << 20))?;
    for name in ["a/clone", "d/deep/clone"] {
        Run::new("cp").arg("--reflink=always").args([at("big"), at(name)]).ok()?;
    }
    std::os::unix::fs::symlink("f", at("link"))?;
    Run::new("mkfifo").arg(at("pipe")).ok()?;
    sync_filesystem(dir)
}

/// The output of a call, with the mount's path as `@`, and whether it succeeded.
fn said(program: &Path, words: &[&str], dir: &Path) -> Result<(String, bool)> {
    let words = words.iter().map(|word| word.replace('@', &dir.display().to_string()));
    let finished = Run::new(program).args(words).output()?;
    Ok((finished.stdout_text().replace(&dir.display().to_string(), "@"), finished.code == Some(0)))
}

/// An image that is mounted by the kernel, then by us, then by the kernel again.
struct Both<'b> {
    bench: &'b Bench,
    image: std::path::PathBuf,
}

impl Both<'_> {
    fn made<'b>(bench: &'b Bench, options: &[&str]) -> Result<Both<'b>> {
        let image = bench.scratch.file("disk.img");
        mkfs_empty(bench.creamery(), options, "256M", &image)?;
        let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "")?;
        populate(mount.dir())?;
        mount.unmount()?;
        Ok(Both { bench, image })
    }

    /// Compares the output of btrfs-progs on a mount of the kernel, of ours on that mount, and of ours on our own; `of_ours` picks the
    /// part that is compared on our own.
    fn expect_alike(&self, calls: &[&[&str]], of_ours: impl Fn(&str) -> String) -> Result<()> {
        let ours = self.bench.creamery().path();
        let linux = LoopMount::mount(&self.image, &self.bench.scratch.file("kernel"), "noatime")?;
        let mut wanted = Vec::new();
        for words in calls {
            let theirs = said("btrfs".as_ref(), words, linux.dir())?;
            let found = said(ours, words, linux.dir())?;
            ensure!(
                found == theirs,
                "{words:?} of the kernel's mount: ours says {found:?}, btrfs-progs {theirs:?}"
            );
            wanted.push(theirs);
        }
        linux.unmount()?;
        let mount = FuseMount::mount(
            self.bench.creamery(),
            &self.image,
            &self.bench.scratch.file("ours"),
            "noatime",
        )?;
        for (words, (text, is_done)) in calls.iter().zip(wanted) {
            let (found, is_found) = said(ours, words, mount.dir())?;
            let (found, wanted) = (of_ours(&found), of_ours(&text));
            ensure!(
                (&found, is_found) == (&wanted, is_done),
                "{words:?} of our mount: {found} ({is_found}), of the kernel's {wanted} ({is_done})"
            );
        }
        mount.unmount()?;
        btrfs_check(&self.image)
    }
}

/// The lines of a text, sorted.
fn sorted(text: &str) -> String {
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    lines.join("\n")
}

/// `property get`, `set` and `list`, with every word that Linux takes for compression, and some that it does not.
fn properties(bench: &Bench) -> Result<()> {
    const VALUES: [&str; 14] = [
        "zlib", "lzo", "zstd", "zstd:3", "zlib:9", "zstd:99", "none", "no", "", "foo", "ZSTD", "lzo:3",
        "zstd:", "0",
    ];
    let both = Both::made(bench, &["-L", "label"])?;
    let mut calls: Vec<Vec<&str>> = Vec::new();
    for place in ["@", "@/f", "@/d", "@/a", "@/link", "@/pipe", "@/none"] {
        calls.push(vec!["property", "list", place]);
        calls.push(vec!["property", "get", place]);
        for name in ["ro", "label", "compression"] {
            calls.push(vec!["property", "get", place, name]);
        }
        // With a type btrfs-progs opens a pipe, and waits.
        for kind in ["-ti", "-tinode", "-tsubvol"].into_iter().filter(|_| place != "@/pipe") {
            calls.push(vec!["property", "get", kind, place]);
        }
    }
    for place in ["@/f", "@/d"] {
        for value in VALUES {
            calls.push(vec!["property", "set", place, "compression", value]);
            calls.push(vec!["property", "get", place]);
        }
    }
    for words in [
        &["@", "label", "another"][..],
        &["@/a", "label", "another"],
        &["@/a", "ro", "maybe"],
        &["@/d", "ro", "true"],
        &["@/a", "ro", "true"],
        &["@/a", "compression", "zstd"],
        &["@/a/x", "compression", "zstd"],
    ] {
        calls.push([&["property", "set"], words].concat());
    }
    calls.extend(lists_by_kind());
    calls.extend([
        vec!["property", "set", "-f", "@/a", "ro", "false"],
        vec!["property", "set", "-f", "-t", "subvol", "@/a", "ro", "true"],
        vec!["property", "get", "@"],
        vec!["property", "get", "@/a"],
        vec!["property", "get", "-tf", "@/d"],
    ]);
    calls.extend([
        vec!["property", "set", "@/a", "ro", "false"],
        vec!["property", "set", "@", "label", "label"],
    ]);
    calls.push(vec!["property", "set", "@/f", "compression", ""]);
    calls.push(vec!["property", "set", "@/d", "compression", ""]);
    let calls: Vec<&[&str]> = calls.iter().map(|words| &words[..]).collect();
    both.expect_alike(&calls, str::to_owned)?;
    // A property set on a mount of ours counts there, and afterwards.
    let mount = FuseMount::mount(bench.creamery(), &both.image, &bench.scratch.file("ours"), "")?;
    bench
        .creamery()
        .run(["property", "set"])
        .arg(mount.dir().join("d"))
        .args(["compression", "zstd:7"])
        .ok()?;
    std::fs::write(mount.dir().join("d/packed"), vec![7; 1 << 20])?;
    mount.unmount()?;
    let linux = LoopMount::mount(&both.image, &bench.scratch.file("kernel"), "")?;
    properties_of_device(bench, &linux)?;
    let told = |name: &str| said("btrfs".as_ref(), &["property", "get", name, "compression"], linux.dir());
    ensure!(told("@/d")?.0 == "compression=zstd:7\n", "{:?}", told("@/d")?);
    // A new file has only the algorithm, as on Linux.
    ensure!(told("@/d/packed")?.0 == "compression=zstd\n", "{:?}", told("@/d/packed")?);
    ensure!(std::fs::metadata(linux.dir().join("d/packed"))?.len() == 1 << 20, "it is as long");
    linux.unmount()
}

/// Lists with a type have the properties of that type, for any object.
fn lists_by_kind() -> Vec<Vec<&'static str>> {
    let kinds = ["inode", "subvol", "filesystem", "device", "d"];
    let of = |kind| ["@", "@/f", "@/d", "@/a"].map(|place| vec!["property", "list", "-t", kind, place]);
    kinds.into_iter().flat_map(of).collect()
}

/// The label is a property of the device, too.
fn properties_of_device(bench: &Bench, linux: &LoopMount) -> Result<()> {
    let device =
        Run::new("findmnt").args(["-no", "SOURCE"]).arg(linux.dir()).ok()?.stdout_text().trim().to_owned();
    for words in [
        &["list", &device][..],
        &["list", "-t", "device", &device],
        &["get", "-td", &device],
        &["get", &device, "label"],
    ] {
        let words = [&["property"], words].concat();
        let theirs = said("btrfs".as_ref(), &words, linux.dir())?;
        let found = said(bench.creamery().path(), &words, linux.dir())?;
        ensure!(found == theirs, "{words:?}: ours says {}, btrfs-progs {}", found.0, theirs.0);
    }
    // btrfs-progs needs the mount point for that.
    let set = ["property", "set", "-t", "device", &device, "label", "of-a-device"];
    bench.creamery().run(set).ok()?;
    let told = said("btrfs".as_ref(), &["property", "get", "@", "label"], linux.dir())?;
    ensure!(told.0 == "label=of-a-device\n", "{told:?}");
    Ok(())
}

/// The address of a file's data in the filesystem.
fn place_of(file: &Path) -> Result<u64> {
    let told = Run::new("filefrag").args(["-v", "-b1"]).arg(file).ok()?.stdout_text();
    let row = told.lines().find(|line| line.trim_start().starts_with("0:")).context("an extent")?;
    let place = row.split(':').nth(2).and_then(|place| place.split("..").next()).context("where it lies")?;
    Ok(place.trim().parse()?)
}

/// `inspect-internal rootid`, `inode-resolve`, `subvolid-resolve` and `logical-resolve`.
fn resolve(bench: &Bench) -> Result<()> {
    let both = Both::made(bench, &[])?;
    let linux = LoopMount::mount(&both.image, &bench.scratch.file("kernel"), "ro")?;
    let number =
        |name: &str| -> Result<String> { Ok(std::fs::metadata(linux.dir().join(name))?.ino().to_string()) };
    let (f, clone, x, deep) = (number("f")?, number("d/deep/clone")?, number("a/x")?, number("d/deep")?);
    let at = place_of(&linux.dir().join("big"))?;
    let (first, behind) = (at.to_string(), (at + 4096).to_string());
    linux.unmount()?;
    let calls = [
        &["rootid", "@"][..],
        &["rootid", "@/a"],
        &["rootid", "@/a/x"],
        &["rootid", "@/a/b"],
        &["rootid", "@/link"],
        &["rootid", "@/none"],
        &["inode-resolve", &f, "@"],
        &["inode-resolve", "-v", &clone, "@/"],
        &["inode-resolve", &x, "@/a"],
        &["inode-resolve", &deep, "@"],
        &["inode-resolve", "256", "@/a"],
        &["inode-resolve", "9999", "@"],
        &["subvolid-resolve", "256", "@"],
        &["subvolid-resolve", "257", "@/a"],
        &["subvolid-resolve", "5", "@"],
        &["subvolid-resolve", "999", "@"],
        &["logical-resolve", "-P", &first, "@"],
        &["logical-resolve", "-P", &behind, "@/a"],
        &["logical-resolve", "-oP", &behind, "@"],
        &["logical-resolve", "1", "@"],
    ];
    let calls: Vec<Vec<&str>> = calls.iter().map(|words| [&["inspect-internal"], *words].concat()).collect();
    let calls: Vec<&[&str]> = calls.iter().map(|words| &words[..]).collect();
    // The users of data come in no order.
    both.expect_alike(&calls, sorted)?;
    let linux = LoopMount::mount(&both.image, &bench.scratch.file("kernel"), "ro")?;
    let paths = |dir: &Path| -> Result<Vec<String>> {
        let words = ["inspect-internal", "logical-resolve", &first, "@"];
        let (text, is_done) = said(bench.creamery().path(), &words, dir)?;
        ensure!(is_done, "{text}");
        let mut paths: Vec<_> = text.lines().map(str::to_owned).collect();
        paths.sort_unstable();
        Ok(paths)
    };
    let wanted = ["@/a/clone", "@/big", "@/d/deep/clone"];
    ensure!(paths(linux.dir())? == wanted, "of the kernel's: {:?}", paths(linux.dir())?);
    by_a_relative_name(bench, linux.dir(), &first)?;
    linux.unmount()?;
    many_names(bench, &both.image)?;
    let mount = FuseMount::mount(bench.creamery(), &both.image, &bench.scratch.file("ours"), "subvol=a")?;
    let found = paths(mount.dir())?;
    ensure!(
        found[0] == "@/clone" && found.iter().filter(|line| line.contains("not mounted")).count() == 2,
        "{found:?}"
    );
    // A file that was made just now is found, too.
    std::fs::write(mount.dir().join("new"), "")?;
    let ino = std::fs::metadata(mount.dir().join("new"))?.ino().to_string();
    let found =
        said(bench.creamery().path(), &["inspect-internal", "inode-resolve", &ino, "@"], mount.dir())?;
    ensure!(found == ("@/new\n".to_owned(), true), "{found:?}");
    mount.unmount()?;
    let words = ["inspect-internal", "rootid", "/proc"];
    expect_refusal(bench.creamery().run(words), &["/proc", "not on a Btrfs mount"])
}

/// Linux reports all names if they take more than a page, as its answers hold items of any length; on a mount of ours that is an error, not
/// a shorter list.
fn many_names(bench: &Bench, image: &Path) -> Result<()> {
    let linux = LoopMount::mount(image, &bench.scratch.file("kernel"), "")?;
    let many = linux.dir().join("many");
    std::fs::write(&many, "")?;
    for number in 0..400 {
        std::fs::hard_link(&many, linux.dir().join(format!("{number:060}")))?;
    }
    let ino = std::fs::metadata(&many)?.ino().to_string();
    let words = ["inspect-internal", "inode-resolve", &ino, "@"];
    let (found, is_done) = said(bench.creamery().path(), &words, linux.dir())?;
    let (theirs, _) = said("btrfs".as_ref(), &words, linux.dir())?;
    let paths: std::collections::HashSet<_> = found.lines().collect();
    // btrfs-progs omits names beyond 4096 bytes.
    let has_theirs = theirs.lines().count() > 10 && theirs.lines().all(|line| paths.contains(line));
    ensure!(is_done && paths.len() == 401 && has_theirs, "ours says {found}, btrfs-progs {theirs}");
    linux.unmount()?;
    let mount = FuseMount::mount(bench.creamery(), image, &bench.scratch.file("ours"), "")?;
    let words = ["inspect-internal", "inode-resolve", &ino];
    expect_refusal(bench.creamery().run(words).arg(mount.dir()), &["does not fit into an answer"])?;
    mount.unmount()
}

/// Paths of data begin with the operand's directory, in the operand's words, as in btrfs-progs.
fn by_a_relative_name(bench: &Bench, dir: &Path, at: &str) -> Result<()> {
    let above = dir.parent().context("a folder")?;
    for (place, within) in [("kernel", above), ("./kernel/", above), (".", dir)] {
        let lines = |program: &Path| -> Result<Vec<String>> {
            let run =
                Run::new(program).args(["inspect-internal", "logical-resolve", at, place]).within(within);
            Ok(run.output()?.stdout_text().lines().map(str::to_owned).collect())
        };
        let (found, theirs) = (lines(bench.creamery().path())?, lines("btrfs".as_ref())?);
        // btrfs-progs finds no path to a subvolume inside the mounted one.
        let theirs: Vec<_> = theirs.into_iter().filter(|line| !line.contains("not mounted")).collect();
        let begins = found.iter().all(|line| line.starts_with(place));
        ensure!(
            begins && theirs.len() == 2 && theirs.iter().all(|line| found.contains(line)),
            "{place}: ours says {found:?}, btrfs-progs {theirs:?}"
        );
    }
    Ok(())
}

/// Options of `filesystem df` and `usage`.
const UNITS: [&str; 13] =
    ["", "-b", "-h", "-H", "-k", "-m", "-g", "-t", "--raw", "--iec", "--si", "--kbytes", "--tbytes"];

fn calls_of_space() -> Vec<Vec<&'static str>> {
    let mut calls = Vec::new();
    for units in UNITS {
        for words in [&["df"][..], &["usage"], &["usage", "-T"]] {
            let units = [units].into_iter().filter(|units| !units.is_empty());
            calls.push(
                ["filesystem"].into_iter().chain(words.iter().copied()).chain(units).chain(["@"]).collect(),
            );
        }
    }
    calls.push(vec!["filesystem", "usage", "@", "@/a"]);
    calls.push(vec!["filesystem", "df", "@/f"]);
    calls.push(vec!["filesystem", "df", "@/none"]);
    calls
}

/// `filesystem df` and `usage`: byte for byte equal on a mount of the kernel; on one of ours equal to the output for the unmounted image.
fn space(bench: &Bench) -> Result<()> {
    let calls = calls_of_space();
    let ours = bench.creamery().path();
    for (number, options) in [&[][..], &["-m", "single"], &["-M"]].into_iter().enumerate() {
        let image = bench.scratch.file(&format!("{number}.img"));
        mkfs_empty(bench.creamery(), options, "300M", &image)?;
        let linux = LoopMount::mount(&image, &bench.scratch.file("kernel"), "")?;
        populate(linux.dir())?;
        let linux = linux.again_read_only(&image)?;
        for words in &calls {
            let (found, theirs) =
                (said(ours, words, linux.dir())?, said("btrfs".as_ref(), words, linux.dir())?);
            ensure!(
                found == theirs,
                "{options:?} {words:?}: ours says {}, btrfs-progs {}",
                found.0,
                theirs.0
            );
        }
        linux.unmount()?;
        let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("ours"), "")?;
        let is_of_a_place = |words: &&Vec<&str>| words.last() == Some(&"@");
        let live: Vec<_> = calls
            .iter()
            .filter(is_of_a_place)
            .map(|words| said(ours, words, mount.dir()))
            .collect::<Result<_>>()?;
        mount.unmount()?;
        for (words, live) in calls.iter().filter(is_of_a_place).zip(live) {
            let (found, is_done) = said(ours, words, &image)?;
            // Either the image or its device is an operand.
            ensure!(
                is_done && live == (found.clone(), true)
                    || live.0 == found.replace('@', &image.display().to_string()),
                "{options:?} {words:?}: our mount says {}, the image {found}",
                live.0
            );
        }
    }
    Ok(())
}

/// `filesystem df` and `usage` of a filesystem on two devices, in each profile that they allow, for root and for others.
fn several(bench: &Bench) -> Result<()> {
    let images = ["one.img", "two.img"].map(|name| bench.scratch.file(name));
    let ours = bench.creamery().path();
    for profiles in [["raid0", "raid1"], ["raid1", "raid1"], ["single", "dup"]] {
        for image in &images {
            let _ = std::fs::remove_file(image);
            std::fs::File::create_new(image)?.set_len(400 << 20)?;
        }
        let attach = |image: &Path| -> Result<String> {
            Ok(Run::new("losetup").args(["-f", "--show"]).arg(image).ok()?.stdout_text().trim().to_owned())
        };
        let devices = [attach(&images[0])?, attach(&images[1])?];
        let dir = bench.scratch.dir("several")?;
        let work = || -> Result<()> {
            let [data, metadata] = profiles;
            Run::new("mkfs.btrfs").args(["-q", "-f", "-d", data, "-m", metadata]).args(&devices).ok()?;
            Run::new("mount").args(["-t", "btrfs", &devices[0]]).arg(&dir).ok()?;
            populate(&dir)?;
            stats_of_each(ours, &devices, &dir)?;
            // A kernel with write access changes its figures after a commit, too.
            Run::new("mount").args(["-o", "remount,ro"]).arg(&dir).ok()?;
            for words in calls_of_space() {
                let (found, theirs) = (said(ours, &words, &dir)?, said("btrfs".as_ref(), &words, &dir)?);
                ensure!(
                    found == theirs,
                    "{profiles:?} {words:?}: ours says {}, btrfs-progs {}",
                    found.0,
                    theirs.0
                );
            }
            Ok(())
        };
        let worked = work();
        Run::new("umount").arg(&dir).again_while_busy().output()?;
        Run::new("losetup").arg("-d").args(&devices).ok()?;
        std::fs::remove_dir(&dir)?;
        worked?;
    }
    Ok(())
}

/// `device stats` of one device prints only that device, whichever of them the mount table has.
fn stats_of_each(ours: &Path, devices: &[String], dir: &Path) -> Result<()> {
    for options in [&[][..], &["-T"], &["-c"], &["-z"]] {
        for device in devices {
            let words = [&["device", "stats"], options, &[device]].concat();
            let (found, theirs) = (said(ours, &words, dir)?, said("btrfs".as_ref(), &words, dir)?);
            ensure!(found == theirs, "{words:?}: ours says {}, btrfs-progs {}", found.0, theirs.0);
        }
    }
    Ok(())
}

/// `filesystem du`: data shared between subvolumes and within one, names of a file, holes, preallocated space, and inline data.
fn disk_usage(bench: &Bench) -> Result<()> {
    let both = Both::made(bench, &[])?;
    let linux = LoopMount::mount(&both.image, &bench.scratch.file("kernel"), "")?;
    let at = |name: &str| linux.dir().join(name);
    for words in [["fallocate", "-l", "1M", "set-aside"], ["truncate", "-s", "1M", "hole"]] {
        Run::new(words[0]).args(&words[1..3]).arg(at(words[3])).ok()?;
    }
    std::fs::write(at("alone"), vec![3; 200_000])?;
    std::fs::hard_link(at("big"), at("a-second-name"))?;
    Run::new("btrfs").args(["-q", "subvolume", "snapshot"]).args([at("a"), at("d/of-a")]).ok()?;
    std::fs::write(at("a/later"), vec![5; 70_000])?;
    linux.unmount()?;
    let calls: [&[&str]; 11] = [
        &["@"],
        &["@/"],
        &["-s", "@"],
        &["-s", "@/a", "@/d", "@/f"],
        &["@/big", "@/a-second-name", "@/alone"],
        &["@/set-aside", "@/hole", "@/link"],
        &["-s", "--raw", "@/none", "@/d"],
        &["--mbytes", "@/d"],
        &["--si", "@/a/clone"],
        &["-s", "/proc"],
        &["@/none"],
    ];
    let calls: Vec<Vec<&str>> = calls.iter().map(|words| [&["filesystem", "du"], *words].concat()).collect();
    let calls: Vec<&[&str]> = calls.iter().map(|words| &words[..]).collect();
    // Names are listed in another order; ours may omit the table for an operand that cannot be listed.
    both.expect_alike(&calls, sorted)?;
    // A mount below does not count.
    let linux = LoopMount::mount(&both.image, &bench.scratch.file("kernel"), "")?;
    Run::new("mount").args(["-t", "tmpfs", "none"]).arg(linux.dir().join("d/deep")).ok()?;
    let found = said(bench.creamery().path(), &["filesystem", "du", "-s", "--raw", "@/d"], linux.dir());
    Run::new("umount").arg(linux.dir().join("d/deep")).again_while_busy().ok()?;
    let (text, is_done) = found?;
    let of_the_snapshot = 3 << 20;
    ensure!(is_done && text.contains(&format!("{of_the_snapshot:>10}  ")), "{text}");
    linux.unmount()
}
