//! Quotas beside Linux: equal work leaves equal numbers, which `btrfs check` and a rescan by the kernel confirm; limits refuse as Linux'
//! limits do.

pub(crate) mod damaged;
pub(crate) mod joined;
pub(crate) mod made;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{
    Finished, FuseMount, Judge, LoopMount, Random, Run, Signal, btrfs_check, daemon, signal,
};
use serde_json::Value;

use crate::hostile::Victim;
use crate::support::{JUDGED, MOUNTED, expect_refusal, inside, mkfs_empty};

const EDQUOT: i32 = 122;
const MIB: u64 = 1 << 20;

pub(crate) fn cases() -> Vec<Case> {
    let mounted = [&MOUNTED[..], &[Judge::Tool("cp")]].concat();
    vec![
        Case::new("quotas/words", &JUDGED, words),
        Case::new("quotas/words-of-what-is-gone", &mounted, words_of_what_is_gone),
        Case::new("quotas/refused", &JUDGED, refused),
        Case::new("quotas/as-on-linux", &mounted, |bench| as_on_linux(bench, false)),
        Case::new("quotas/simple-as-on-linux", &mounted, |bench| as_on_linux(bench, true)),
        Case::new("quotas/in-turn-with-linux", &mounted, |bench| in_turn(bench, "quota")),
        Case::new("quotas/simple-in-turn-with-linux", &mounted, |bench| in_turn(bench, "squota")),
        Case::new("quotas/limits", &mounted, limits),
        Case::new("quotas/limits-of-groups", &mounted, limits_of_groups),
        Case::new("quotas/deleted-subvolumes", &mounted, deleted_subvolumes),
        Case::new("quotas/written-without", &mounted, written_without),
        Case::new("quotas/killed", &mounted, killed),
        Case::new("quotas/damaged", &mounted, damaged),
    ]
}

/// The side that does the work and counts.
pub(crate) enum CountingSide {
    Ours(FuseMount),
    Linux(LoopMount),
}

impl CountingSide {
    pub(crate) fn ours(bench: &Bench, image: &Path, options: &str) -> Result<Self> {
        FuseMount::mount(bench.creamery(), image, &bench.scratch.file("fuse"), options).map(Self::Ours)
    }

    pub(crate) fn linux(bench: &Bench, image: &Path) -> Result<Self> {
        LoopMount::mount(image, &bench.scratch.file("loop"), "commit=1").map(Self::Linux)
    }

    pub(crate) fn dir(&self) -> &Path {
        match self {
            Self::Ours(mount) => mount.dir(),
            Self::Linux(mount) => mount.dir(),
        }
    }

    /// `creamery WORDS` or `btrfs WORDS`.
    fn run(&self, bench: &Bench, words: &[&OsStr]) -> Run {
        match self {
            Self::Ours(_) => bench.creamery().run(words),
            Self::Linux(_) => Run::new("btrfs").args(words),
        }
    }

    pub(crate) fn call(&self, bench: &Bench, words: &str, paths: &[&str]) -> Result<Finished> {
        self.prepared(bench, words, paths).ok()
    }

    /// The command without running it: words, and paths on the mount.
    pub(crate) fn prepared(&self, bench: &Bench, words: &str, paths: &[&str]) -> Run {
        let paths: Vec<_> = paths.iter().map(|path| self.dir().join(path)).collect();
        let words: Vec<&OsStr> = words
            .split_whitespace()
            .map(OsStr::new)
            .chain(paths.iter().map(|path| path.as_os_str()))
            .collect();
        self.run(bench, &words)
    }

    pub(crate) fn sync(&self, bench: &Bench) -> Result<()> {
        match self {
            Self::Ours(mount) => bench.creamery().run(["sync"]).arg(mount.dir()).ok().map(drop),
            Self::Linux(mount) => {
                Run::new("btrfs").args(["filesystem", "sync"]).arg(mount.dir()).ok().map(drop)
            }
        }
    }

    /// Ends the side once all deleted subvolumes are dropped.
    pub(crate) fn end(self, bench: &Bench) -> Result<()> {
        self.call(bench, "subvolume sync", &[""])?;
        match self {
            Self::Ours(mount) => mount.unmount(),
            Self::Linux(mount) => mount.unmount(),
        }
    }
}

pub(crate) fn fill(path: &Path, len: u64, salt: u64) -> std::io::Result<()> {
    File::create(path)?.write_all(&Random::new(salt).bytes(usize::try_from(len).expect("small")))
}

/// Work with a known result for every extent: files, overwrites, clones, snapshots, and deletions of all these.
fn work(bench: &Bench, side: &CountingSide) -> Result<()> {
    let at = |path: &str| side.dir().join(path);
    side.call(bench, "subvolume create", &["a"])?;
    side.call(bench, "subvolume create", &["b"])?;
    for number in 0..40 {
        fill(&at(&format!("a/file {number}")), 40_000 + number * 1000, number)?;
        fs::write(at(&format!("b/small {number}")), vec![7; 100])?;
    }
    side.sync(bench)?;
    side.call(bench, "subvolume snapshot", &["a", "before"])?;
    for number in 0..20 {
        let file = File::options().write(true).open(at(&format!("a/file {number}")))?;
        file.write_all_at(&Random::new(number).bytes(8192), 4096)?;
    }
    fs::remove_file(at("a/file 30"))?;
    Run::new("cp").arg("--reflink=auto").args([at("before/file 35"), at("b/clone")]).ok()?;
    side.sync(bench)?;
    side.call(bench, "subvolume snapshot", &["before", "again"])?;
    fs::remove_file(at("before/file 35"))?;
    side.call(bench, "subvolume delete", &["again"])?;
    side.sync(bench)
}

/// The output about all groups, as JSON.
pub(crate) fn groups(bench: &Bench, image: &Path) -> Result<Vec<Value>> {
    let said = bench.creamery().run(["qgroup", "show", "--json"]).arg(image).ok()?.stdout_text();
    let said: Value = serde_json::from_str(&said)?;
    said["qgroup-show"].as_array().cloned().context("a list of groups")
}

/// Checks that a rescan by the kernel finds the same numbers.
pub(crate) fn judge(bench: &Bench, image: &Path, simple: bool) -> Result<()> {
    btrfs_check(image)?;
    let before = groups(bench, image)?;
    let linux = CountingSide::linux(bench, image)?;
    if !simple {
        linux.call(bench, "quota rescan -w", &[""])?;
    }
    linux.end(bench)?;
    let after = groups(bench, image)?;
    ensure!(before == after, "a rescan of the kernel's changes {before:#?} to {after:#?}");
    Ok(())
}

fn as_on_linux(bench: &Bench, simple: bool) -> Result<()> {
    let images = ["ours", "linux"].map(|name| bench.scratch.file(name));
    let enable = if simple { "quota enable --simple" } else { "quota enable" };
    let mut listed = Vec::new();
    for image in &images {
        mkfs_empty(bench.creamery(), &[], "512M", image)?;
        let side = if listed.is_empty() {
            CountingSide::ours(bench, image, "")?
        } else {
            CountingSide::linux(bench, image)?
        };
        side.call(bench, enable, &[""])?;
        work(bench, &side)?;
        side.end(bench)?;
        judge(bench, image, simple)?;
        listed.push(groups(bench, image)?);
    }
    let names =
        |groups: &[Value]| groups.iter().map(|group| group["qgroupid"].to_string()).collect::<Vec<_>>();
    ensure!(
        names(&listed[0]) == names(&listed[1]),
        "{:#?} are not the groups of Linux, {:#?}",
        listed[0],
        listed[1]
    );
    // The number of blocks of a tree may differ; the amount of data may not.
    for (ours, linux) in listed[0].iter().zip(&listed[1]) {
        for field in ["referenced", "exclusive"] {
            let [ours, linux] = [ours, linux].map(|group| group[field].as_u64().unwrap_or_default());
            ensure!(ours.abs_diff(linux) < 512 << 10, "{field}: ours {ours}, of Linux {linux}: {listed:#?}");
        }
    }
    Ok(())
}

fn in_turn(bench: &Bench, feature: &str) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    File::create(&image)?.set_len(512 * MIB)?;
    Run::new("mkfs.btrfs").args(["-q", "-O", feature]).arg(&image).ok()?;
    let mut random = Random::new(3);
    for turn in 0..6 {
        let side = if turn % 2 == 0 {
            CountingSide::ours(bench, &image, "")?
        } else {
            CountingSide::linux(bench, &image)?
        };
        let name = format!("subvolume {turn}");
        side.call(bench, "subvolume create", &[&name])?;
        for number in 0..30 {
            fill(&side.dir().join(&name).join(format!("file {number}")), random.below(100_000), number)?;
        }
        side.sync(bench)?;
        side.call(bench, "subvolume snapshot", &[&name, &format!("snapshot {turn}")])?;
        if turn > 0 {
            let before = side.dir().join(format!("subvolume {}", turn - 1));
            for number in 0..10 {
                fill(&before.join(format!("file {number}")), random.below(100_000), number + turn)?;
            }
        }
        if turn > 1 {
            side.call(bench, "subvolume delete", &[&format!("snapshot {}", turn - 2)])?;
        }
        side.end(bench)?;
        btrfs_check(&image).with_context(|| format!("turn {turn}"))?;
    }
    judge(bench, &image, feature == "squota")
}

/// Writes until an error; returns the number of bytes, and the errno.
fn write_until_refused(path: &Path) -> Result<(u64, i32)> {
    let mut file = File::create(path)?;
    let mut random = Random::new(9);
    for number in 0..1000 {
        if let Err(error) = file.write_all(&random.bytes(64 << 10)).and_then(|()| file.sync_data()) {
            return Ok((number * (64 << 10), error.raw_os_error().unwrap_or_default()));
        }
    }
    anyhow::bail!("62 MiB were written behind a limit")
}

fn limits(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    for option in ["", "nodelalloc"] {
        let _ = fs::remove_file(&image);
        mkfs_empty(bench.creamery(), &[], "512M", &image)?;
        let side = CountingSide::ours(bench, &image, option)?;
        let at = |path: &str| side.dir().join(path);
        side.call(bench, "quota enable", &[""])?;
        side.call(bench, "subvolume create", &["a"])?;
        side.call(bench, "qgroup limit 8M", &["a"])?;
        let (written, errno) = write_until_refused(&at("a/file"))?;
        ensure!(errno == EDQUOT, "{option}: error {errno} after {written} bytes");
        ensure!((6 * MIB..=8 * MIB).contains(&written), "{option}: refused after {written} bytes of 8 MiB");
        // Written data is there, deleting makes room, and other groups are not affected.
        let found = fs::read(at("a/file"))?;
        ensure!(found.len() as u64 >= written, "{option}: {} bytes of {written}", found.len());
        fill(&at("elsewhere"), 16 * MIB, 1)?;
        fs::remove_file(at("a/file"))?;
        fill(&at("a/again"), 4 * MIB, 2)?;
        side.call(bench, "qgroup limit none", &["a"])?;
        fill(&at("a/more"), 16 * MIB, 3)?;
        side.end(bench)?;
        judge(bench, &image, false)?;
    }
    Ok(())
}

fn limits_of_groups(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "512M", &image)?;
    let side = CountingSide::ours(bench, &image, "")?;
    let at = |path: &str| side.dir().join(path);
    side.call(bench, "quota enable", &[""])?;
    for name in ["a", "b"] {
        side.call(bench, "subvolume create", &[name])?;
    }
    side.call(bench, "qgroup create 1/1", &[""])?;
    for member in ["0/256", "0/257"] {
        side.call(bench, &format!("qgroup assign {member} 1/1"), &[""])?;
    }
    side.call(bench, "qgroup limit 8M 1/1", &[""])?;
    fill(&at("a/file"), 4 * MIB, 1)?;
    let (written, errno) = write_until_refused(&at("b/file"))?;
    ensure!(errno == EDQUOT && written < 4 * MIB, "error {errno} after {written} bytes");
    side.end(bench)?;
    judge(bench, &image, false)?;
    // Linux enforces the limit, too.
    let linux = CountingSide::linux(bench, &image)?;
    linux.call(bench, "qgroup limit 10M 1/1", &[""])?;
    let (written, errno) = write_until_refused(&linux.dir().join("a/more"))?;
    ensure!(errno == EDQUOT && written < 3 * MIB, "Linux: error {errno} after {written} bytes");
    linux.end(bench)
}

fn deleted_subvolumes(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &["-n", "4096"], "512M", &image)?;
    let side = CountingSide::ours(bench, &image, "")?;
    side.call(bench, "quota enable", &[""])?;
    side.call(bench, "subvolume create", &["a"])?;
    for number in 0..3000 {
        fs::write(side.dir().join(format!("a/{number}")), vec![1; if number % 10 == 0 { 5000 } else { 9 }])?;
    }
    side.sync(bench)?;
    for number in 0..8 {
        side.call(bench, "subvolume snapshot", &["a", &format!("s{number}")])?;
        for file in 0..100 {
            fs::write(side.dir().join(format!("a/{}", number * 300 + file)), vec![2; 6000])?;
        }
    }
    side.sync(bench)?;
    for name in ["s3", "a", "s0", "s7"] {
        side.call(bench, "subvolume delete", &[name])?;
    }
    side.end(bench)?;
    judge(bench, &image, false)?;
    let left = groups(bench, &image)?;
    ensure!(left.len() == 6, "groups of deleted subvolumes are left: {left:#?}");
    Ok(())
}

/// A writer without quota support leaves numbers that are marked as wrong.
fn written_without(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    bench.creamery().run(["quota", "enable"]).arg(&image).ok()?;
    let status = || -> Result<String> {
        Ok(bench.creamery().run(["quota", "status"]).arg(&image).ok()?.stdout_text())
    };
    ensure!(status()?.contains("Inconsistent:  no"), "{}", status()?);
    // The status names the transaction before the last one.
    let mut random = Random::new(5);
    for round in 0..2 {
        let side = CountingSide::ours(bench, &image, "")?;
        fill(&side.dir().join(format!("file {round}")), random.below(MIB), round)?;
        side.end(bench)?;
        judge(bench, &image, false)?;
    }
    bench.creamery().run(["quota", "disable"]).arg(&image).ok()?;
    btrfs_check(&image)?;
    ensure!(status()?.contains("Enabled:       no"), "{}", status()?);
    let linux = CountingSide::linux(bench, &image)?;
    linux.call(bench, "quota enable", &[""])?;
    linux.call(bench, "quota rescan -w", &[""])?;
    linux.end(bench)?;
    judge(bench, &image, false)
}

/// A server that is killed at any moment leaves right numbers, or numbers that are marked as inconsistent.
fn killed(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "512M", &image)?;
    for round in 0..4 {
        let side = CountingSide::ours(bench, &image, "")?;
        if round == 0 {
            side.call(bench, "quota enable", &[""])?;
        }
        let name = format!("a{round}");
        side.call(bench, "subvolume create", &[&name])?;
        for number in 0..200 {
            let path = side.dir().join(&name).join(number.to_string());
            fill(&path, 5000 * (number % 7), number)?;
            if number % 50 == 0 {
                File::open(&path)?.sync_all()?;
            }
        }
        side.call(bench, "subvolume snapshot", &[&name, &format!("s{round}")])?;
        fill(&side.dir().join(&name).join("1"), 50_000, round)?;
        File::open(side.dir().join(&name).join("1"))?.sync_all()?;
        signal(Signal::KILL, daemon(&image)?)?;
        drop(side);
        // The next change replays the log.
        let side = if round % 2 == 0 {
            CountingSide::ours(bench, &image, "")?
        } else {
            CountingSide::linux(bench, &image)?
        };
        std::fs::create_dir(side.dir().join(format!("changed{round}")))?;
        side.end(bench)?;
        judge(bench, &image, false).with_context(|| format!("round {round}"))?;
    }
    Ok(())
}

/// An invalid status does not prevent reading, but writes are refused instead of counted wrongly. A status of another version counts as
/// none, on Linux too.
fn damaged(bench: &Bench) -> Result<()> {
    const STATUS: u8 = 240;
    let (image, source) = (bench.scratch.file("disk.img"), bench.scratch.file("source"));
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    fill(&source, 100_000, 1)?;
    let copy = |name: &str| bench.creamery().run(["cp"]).arg(&source).arg(inside(&image, name));
    copy("/file").ok()?;
    bench.creamery().run(["quota", "enable"]).arg(&image).ok()?;
    let mut victim = Victim::new(image.clone())?;
    // Simple quotas, but without the generation they began with.
    let edited = victim.edit(STATUS, &mut |_, data| {
        data[16] |= 8;
        true
    })?;
    ensure!(edited >= 1, "there is no status");
    let read = bench.creamery().run(["cat"]).arg(inside(&image, "/file")).ok()?;
    ensure!(read.stdout == fs::read(&source)?, "the file is something else");
    expect_refusal(copy("/other"), &["quota"])?;
    victim.restore()?;
    btrfs_check(&image)?;
    let mut victim = Victim::new(image.clone())?;
    victim.edit(STATUS, &mut |_, data| {
        data[0] = 2;
        true
    })?;
    drop(victim);
    let said = bench.creamery().run(["quota", "status"]).arg(&image).ok()?.stdout_text();
    ensure!(said.contains("Enabled:       no"), "{said}");
    copy("/other").ok()?;
    // Quotas begin anew, and nothing of the old ones is left.
    bench.creamery().run(["quota", "enable"]).arg(&image).ok()?;
    judge(bench, &image, false)
}

/// The output is that of btrfs-progs.
fn words(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let linux = CountingSide::linux(bench, &image)?;
    linux.call(bench, "quota enable", &[""])?;
    for name in ["a", "name with spaces"] {
        linux.call(bench, "subvolume create", &[name])?;
    }
    fill(&linux.dir().join("a/file"), 3_000_000, 1)?;
    linux.sync(bench)?;
    linux.call(bench, "subvolume snapshot", &["a", "s"])?;
    linux.call(bench, "qgroup create 1/100", &[""])?;
    linux.call(bench, "qgroup create 2/123456", &[""])?;
    linux.call(bench, "qgroup create 3/0", &[""])?;
    linux.call(bench, "qgroup assign --no-rescan 0/256 1/100", &[""])?;
    linux.call(bench, "qgroup assign --no-rescan 1/100 3/0", &[""])?;
    linux.call(bench, "qgroup assign --no-rescan 1/100 2/123456", &[""])?;
    linux.call(bench, "qgroup assign --no-rescan 2/123456 3/0", &[""])?;
    linux.call(bench, "qgroup limit 10M 0/256", &[""])?;
    linux.call(bench, "qgroup limit -e 1G 1/100", &[""])?;
    // Only enabling has begun a rescan before, and two do not run at once.
    linux.call(bench, "quota rescan -W", &[""])?;
    linux.call(bench, "quota rescan -w", &[""])?;
    linux.sync(bench)?;
    let options = [
        "",
        "-p",
        "-c",
        "-pcre",
        "-r --raw",
        "-e --si",
        "--kbytes",
        "--sort=-rfer,qgroupid",
        "--sort=path",
        "-F",
        "-f",
    ];
    let mut wanted = Vec::new();
    for option in options {
        let said = linux.call(bench, &format!("qgroup show {option}"), &["a"])?.stdout_text();
        // In place of the plural "s", btrfs-progs 6.14 prints a zero byte for a count of one.
        wanted.push(said.replace('\0', ""));
    }
    let json = linux.call(bench, "--format json qgroup show", &[""])?.stdout_text();
    linux.end(bench)?;
    let place = inside(&image, "/a");
    for (option, wanted) in options.iter().zip(wanted) {
        let run = bench.creamery().run(["qgroup", "show"]).args(option.split_whitespace()).arg(&place);
        let said = run.ok()?.stdout_text();
        ensure!(said == wanted, "{option}: ours is\n{said}btrfs-progs' is\n{wanted}");
    }
    let json: Value = serde_json::from_str(&json)?;
    let found = groups(bench, &image)?;
    ensure!(json["qgroup-show"].as_array() == Some(&found), "{found:#?} is not {json:#?}");
    Ok(())
}

/// The output about subvolumes that are deleted but not dropped, and about those of which only a group is left.
fn words_of_what_is_gone(bench: &Bench) -> Result<()> {
    const INFO: u8 = 242;
    for enable in ["quota enable", "quota enable --simple"] {
        let mut said = Vec::new();
        for name in ["ours", "linux"] {
            let image = bench.scratch.file(name);
            let _ = fs::remove_file(&image);
            mkfs_empty(bench.creamery(), &[], "256M", &image)?;
            let ours = name == "ours";
            let side = if ours {
                CountingSide::ours(bench, &image, "")?
            } else {
                CountingSide::linux(bench, &image)?
            };
            side.call(bench, enable, &[""])?;
            for name in ["a", "b", "c"] {
                side.call(bench, "subvolume create", &[name])?;
                fill(&side.dir().join(name).join("file"), MIB, 1)?;
            }
            Run::new("cp")
                .arg("--reflink=auto")
                .args([side.dir().join("c/file"), side.dir().join("clone")])
                .ok()?;
            side.sync(bench)?;
            let open = File::open(side.dir().join("a/file"))?;
            side.call(bench, "subvolume delete", &["a"])?;
            side.sync(bench)?;
            said.push(side.call(bench, "qgroup show", &[""])?.stdout_text());
            drop(open);
            side.call(bench, "subvolume delete", &["c"])?;
            side.sync(bench)?;
            side.call(bench, "subvolume sync", &[""])?;
            side.sync(bench)?;
            // With simple quotas, data that others still have counts for its group.
            said.push(side.call(bench, "qgroup show", &[""])?.stdout_text());
            side.end(bench)?;
        }
        let (ours, linux) = said.split_at(2);
        ensure!(ours == linux, "{enable}: ours is\n{}of Linux\n{}", ours.join(""), linux.join(""));
        ensure!(ours[0].contains("<under deletion>"), "{}", ours[0]);
    }
    // A group that outlives its subvolume, as with Linux before 6.10: data that counts for it stays counted.
    let image = bench.scratch.file("stale");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    bench.creamery().run(["quota", "enable"]).arg(&image).ok()?;
    bench.creamery().run(["subvolume", "create"]).arg(inside(&image, "/a")).ok()?;
    let mut victim = Victim::new(image.clone())?;
    let edited = victim.edit(INFO, &mut |key, data| {
        let is_of_a = key[9..17] == 256_u64.to_le_bytes();
        if is_of_a {
            data[9..11].fill(255);
        }
        is_of_a
    })?;
    ensure!(edited >= 1, "there is no group");
    drop(victim);
    bench.creamery().run(["subvolume", "delete"]).arg(inside(&image, "/a")).ok()?;
    let ours = bench.creamery().run(["qgroup", "show"]).arg(&image).ok()?.stdout_text();
    let linux = CountingSide::linux(bench, &image)?;
    let wanted = linux.call(bench, "qgroup show", &[""])?.stdout_text();
    ensure!(ours == wanted && ours.contains("<stale>"), "ours is\n{ours}btrfs-progs' is\n{wanted}");
    linux.end(bench)
}

fn refused(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let call = |words: &str| bench.creamery().run(words.split_whitespace()).arg(&image);
    for words in
        ["qgroup show", "qgroup create 1/1", "qgroup limit 1M 0/5", "quota rescan", "qgroup clear-stale"]
    {
        expect_refusal(call(words), &["quotas are not enabled"]).with_context(|| words.to_owned())?;
    }
    call("quota disable").ok()?;
    call("quota enable").ok()?;
    call("quota enable").ok()?;
    call("qgroup create 1/1").ok()?;
    for (words, told) in [
        ("qgroup create 1/1", "exists"),
        ("qgroup create x/1", "level/number"),
        ("qgroup create 1/281474976710656", "level/number"),
        ("qgroup destroy 1/2", "1/2"),
        ("qgroup destroy 0/5", "0/5 exists"),
        ("qgroup assign 1/1 1/1", "level"),
        ("qgroup assign 0/5 1/9", "1/9"),
        ("qgroup remove 0/5 1/1", "not found"),
        ("qgroup limit 1X 0/5", "unit"),
        ("qgroup limit 1M 3/3", "3/3"),
        ("qgroup show --sort=size", "column"),
    ] {
        expect_refusal(call(words), &[told]).with_context(|| words.to_owned())?;
    }
    btrfs_check(&image)?;
    call("quota disable").ok()?;
    call("quota enable --simple").ok()?;
    expect_refusal(call("quota rescan"), &["simple quotas"])?;
    btrfs_check(&image)
}
