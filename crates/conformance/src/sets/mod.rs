//! Filesystems of several devices that the kernel has made, and wrote to while some were away.

pub(crate) mod read;
pub(crate) mod shown;
pub(crate) mod survey;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::walk::{Compare, Walk, expect_same};
use creamery_testkit::{LoopDevice, LoopMount, Run};

use crate::support::{JUDGED, expect_failure, expect_refusal, inside, sparse_file};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("sets/members-of-two-histories", &JUDGED, two_histories),
        Case::new("sets/one-of-two-histories", &JUDGED, one_of_two_histories),
        Case::new("sets/members-that-missed-writes", &JUDGED, missed_writes),
        Case::new("sets/a-member-that-was-away-for-long", &JUDGED, away_for_long),
        Case::new("sets/an-old-copy-of-a-member", &JUDGED, old_copy),
        Case::new("sets/made-from-a-seed", &JUDGED, made_from_seed),
    ]
}

const MEMBER: u64 = 256 << 20;

/// A filesystem of several devices in files, and what the kernel shows of it.
pub(crate) struct Set {
    pub(crate) members: Vec<PathBuf>,
    pub(crate) truth: Walk,
}

impl Set {
    /// In files `m1.img` to `mN.img` of a directory `name` of the case, with something of each sort in it.
    pub(crate) fn made(bench: &Bench, name: &str, options: &[&str], count: usize) -> Result<Self> {
        Self::of_sizes(bench, name, options, &vec![MEMBER; count])
    }

    pub(crate) fn of_sizes(bench: &Bench, name: &str, options: &[&str], sizes: &[u64]) -> Result<Self> {
        let dir = bench.scratch.dir(name)?;
        let members: Vec<PathBuf> =
            (1..=sizes.len()).map(|number| dir.join(format!("m{number}.img"))).collect();
        for (member, size) in members.iter().zip(sizes) {
            sparse_file(member, *size)?;
        }
        Run::new("mkfs.btrfs").arg("-q").args(options).args(&members).ok()?;
        with_kernel(bench, &members, "rw", fill)?;
        let truth = walk_of_kernel(bench, &members, "ro")?;
        Ok(Self { members, truth })
    }

    pub(crate) fn first(&self) -> &Path {
        &self.members[0]
    }

    /// Moves the members to directories of their own, so that none lies beside another.
    pub(crate) fn apart(mut self, bench: &Bench, name: &str) -> Result<Self> {
        for (number, member) in self.members.iter_mut().enumerate() {
            let to = bench.scratch.dir(&format!("{name}-{number}"))?.join("member.img");
            std::fs::rename(&*member, &to)?;
            *member = to;
        }
        Ok(self)
    }
}

/// Files in one extent and in many, in the tree, with a hole and without checksums, and a snapshot.
fn fill(dir: &Path) -> Result<()> {
    for number in 1..=4_u32 {
        let bytes: Vec<u8> = (0..number * 400_000).map(|at| ((at * number) >> 7) as u8).collect();
        std::fs::write(dir.join(format!("file-{number}")), bytes)?;
    }
    std::fs::create_dir(dir.join("small"))?;
    for number in 0..100 {
        std::fs::write(dir.join(format!("small/{number}")), format!("small {number}"))?;
    }
    std::fs::write(dir.join("nocow"), "")?;
    Run::new("chattr").arg("+C").arg(dir.join("nocow")).ok()?;
    std::fs::write(dir.join("nocow"), vec![b'n'; 300_000])?;
    std::fs::File::create(dir.join("hole"))?.set_len(5 << 20)?;
    Run::new("btrfs").args(["-q", "subvolume", "snapshot"]).arg(dir).arg(dir.join("snapshot")).ok()?;
    Ok(())
}

/// Has the kernel mount these members, and no others, and does something there.
pub(crate) fn with_kernel<T>(
    bench: &Bench,
    members: &[PathBuf],
    options: &str,
    work: impl FnOnce(&Path) -> Result<T>,
) -> Result<T> {
    let read_only = options.split(',').any(|option| option == "ro");
    let (first, others) = members.split_first().context("no member")?;
    let others: Vec<LoopDevice> =
        others.iter().map(|member| LoopDevice::attach(member, read_only)).collect::<Result<_>>()?;
    let named: String = others.iter().map(|device| format!(",device={}", device.path().display())).collect();
    let mut mount = LoopMount::mount(first, &bench.scratch.file("kernel"), &format!("{options}{named}"))?;
    let done = work(mount.dir())?;
    let told = mount.unmount_and_tell()?;
    let is_expected = |line: &&String| line.contains("missing") || line.contains("degraded");
    let others_told: Vec<&String> = told.iter().filter(|line| !is_expected(line)).collect();
    ensure!(others_told.is_empty(), "the kernel complains: {others_told:?}");
    others.into_iter().try_for_each(LoopDevice::detach)?;
    Ok(done)
}

pub(crate) fn walk_of_kernel(bench: &Bench, members: &[PathBuf], options: &str) -> Result<Walk> {
    with_kernel(bench, members, options, Walk::take)
}

/// Copies all that `creamery cp` reads with these options, and compares it.
pub(crate) fn expect_read(
    bench: &Bench,
    image: &Path,
    options: &[&std::ffi::OsStr],
    want: &Walk,
) -> Result<String> {
    let out = bench.scratch.dir("out")?;
    let copied = bench.creamery().run(["cp", "-a"]).args(options).arg(inside(image, "/.")).arg(&out).ok()?;
    let compare = Compare { holes: false, ..Compare::default() };
    expect_same("what was copied out of the set", want, &Walk::take(&out)?, &compare)?;
    std::fs::remove_dir_all(out)?;
    Ok(copied.stderr_text())
}

/// Two mirrors in files of a directory.
fn mirrors(bench: &Bench, name: &str) -> Result<[PathBuf; 2]> {
    let dir = bench.scratch.dir(name)?;
    let files = [1, 2].map(|number| dir.join(format!("{name}-{number}.img")));
    for file in &files {
        sparse_file(file, MEMBER)?;
    }
    Run::new("mkfs.btrfs").args(["-q", "-d", "raid1", "-m", "raid1"]).args(&files).ok()?;
    Ok(files)
}

/// Has the kernel write to a set of which this member alone is there: so many commits of so many files.
fn write_to(bench: &Bench, member: &Path, commits: usize, files: usize) -> Result<()> {
    with_kernel(bench, &[member.to_owned()], "degraded", |dir| {
        for number in 0..commits {
            for file in 0..files {
                std::fs::write(dir.join(format!("{number}-{file}")), vec![b'm'; 10_000])?;
            }
            Run::new("btrfs").args(["filesystem", "sync"]).arg(dir).ok()?;
        }
        Ok(())
    })
}

/// Two members that were away from each other are of two histories, which nobody puts together again.
fn two_histories(bench: &Bench) -> Result<()> {
    let check = |files: &[&PathBuf]| bench.creamery().run(["check"]).args(files);
    let files = mirrors(bench, "set")?;
    let [first, second] = &files;
    check(&[first, second]).ok()?;
    check(&[second]).ok()?;
    write_to(bench, first, 1, 1)?;
    let refused = |[one, other]: [&PathBuf; 2], wanted: &[&str]| -> Result<()> {
        for order in [[one, other], [other, one]] {
            expect_refusal(check(&order), wanted)?;
        }
        // The other one is found.
        expect_refusal(check(&[one]), wanted)?;
        expect_refusal(bench.creamery().run(["ls"]).arg(inside(other, "/")), wanted)
    };
    // By the same steps, so that all addresses are equal.
    write_to(bench, second, 1, 1)?;
    refused([first, second], &["split brain", "set-1.img", "set-2.img", "--degraded"])?;
    // An earlier commit makes no one history of two.
    for words in [&["--usebackuproot"][..], &["--rescue", "all"]] {
        let ls = bench.creamery().run(["ls"]).args(words).arg(inside(first, "/"));
        expect_refusal(ls, &["split brain"])?;
    }
    // The second one goes on, in all it has: the roots of the commit in which the first one stopped tell, as long as they are there.
    for _ in 0..2 {
        write_to(bench, second, 1, 1)?;
        refused([first, second], &["split brain"])?;
    }
    let files = mirrors(bench, "longer")?;
    let [one, two] = &files;
    write_to(bench, one, 1, 1)?;
    write_to(bench, two, 1, 400)?;
    refused([one, two], &["split brain", "longer-1.img"])?;
    // Also when one has gone on for longer; the last commit of the other one is remembered for a few.
    write_to(bench, two, 1, 1)?;
    refused([one, two], &["split brain", "longer-1.img"])?;
    write_to(bench, two, 8, 1)?;
    refused([one, two], &["missed writes, or", "split brain"])?;
    // Copies, and members of other sets.
    let (copy, other) = (bench.scratch.file("copy.img"), mirrors(bench, "other")?);
    Run::new("cp").arg("--sparse=always").arg(first).arg(&copy).ok()?;
    expect_refusal(
        check(&[first, &copy]),
        &["both device 1", "one is a copy of the other", "name one of them"],
    )?;
    expect_refusal(check(&[first, first]), &["the same device"])?;
    expect_refusal(check(&[first, &other[1]]), &["belongs to filesystem"])?;
    expect_refusal(check(&[&copy]), &["device missing", "--device PATH", "--degraded"])
}

/// Each history is read by itself, although the other one lies beside it.
fn one_of_two_histories(bench: &Bench) -> Result<()> {
    for (name, files_of_second) in [("equal", 1), ("unequal", 400)] {
        let files = mirrors(bench, name)?;
        write_to(bench, &files[0], 1, 1)?;
        write_to(bench, &files[1], 1, files_of_second)?;
        for file in &files {
            let truth = walk_of_kernel(bench, std::slice::from_ref(file), "ro,degraded")?;
            let said = expect_read(bench, file, &["--degraded".as_ref()], &truth)?;
            ensure!(said.contains("left out") && said.contains("split brain"), "no warning: {said}");
            bench.creamery().run(["check", "--degraded"]).arg(file).ok()?;
        }
    }
    Ok(())
}

/// The newest commit counts, in whatever order the members are named, and data without checksums comes from a member that has it.
fn missed_writes(bench: &Bench) -> Result<()> {
    let set = Set::made(bench, "set", &["-d", "raid1", "-m", "raid1"], 2)?;
    let alone = &set.members[1..];
    with_kernel(bench, alone, "degraded", |dir| {
        std::fs::write(dir.join("nocow"), vec![b'N'; 300_000])?;
        std::fs::write(dir.join("file-1"), "new")?;
        Ok(std::fs::remove_file(dir.join("file-2"))?)
    })?;
    let truth = walk_of_kernel(bench, alone, "ro,degraded")?;
    for member in &set.members {
        let said = expect_read(bench, member, &[], &truth)?;
        ensure!(said.contains("m1.img missed writes"), "no warning: {said}");
    }
    // The member that missed them alone is what it was.
    let apart = set.apart(bench, "apart")?;
    expect_read(bench, apart.first(), &["--degraded".as_ref()], &apart.truth).map(drop)
}

/// A member of which the others remember nothing any more is left out, and those that fit are not.
fn away_for_long(bench: &Bench) -> Result<()> {
    let set = Set::made(bench, "set", &["-d", "raid1", "-m", "raid1"], 3)?;
    let others = &set.members[..2];
    with_kernel(bench, others, "degraded", |dir| {
        for number in 0..8 {
            std::fs::write(dir.join(format!("later-{number}")), "later")?;
            Run::new("btrfs").args(["filesystem", "sync"]).arg(dir).ok()?;
        }
        Ok(())
    })?;
    let truth = walk_of_kernel(bench, others, "ro,degraded")?;
    for member in others {
        expect_refusal(
            bench.creamery().run(["ls"]).arg(inside(member, "/")),
            &["missed writes, or", "--degraded"],
        )?;
        let said = expect_read(bench, member, &["--degraded".as_ref()], &truth)?;
        ensure!(said.contains("m3.img is left out"), "no warning: {said}");
    }
    Ok(())
}

/// An old copy of a member does not stand for it where no checksum tells, not even in chunks of one copy.
fn old_copy(bench: &Bench) -> Result<()> {
    let set = Set::made(bench, "set", &["-d", "raid0", "-m", "raid1"], 2)?;
    let old = bench.scratch.dir("old")?.join("m2.img");
    Run::new("cp").arg("--sparse=always").arg(&set.members[1]).arg(&old).ok()?;
    with_kernel(bench, &set.members, "rw", |dir| {
        let file = std::fs::File::options().write(true).open(dir.join("nocow"))?;
        std::io::Write::write_all(&mut &file, &vec![b'N'; 300_000])?;
        Run::new("btrfs").args(["filesystem", "sync"]).arg(dir).ok()?;
        std::fs::write(dir.join("later"), "later")?;
        Run::new("btrfs").args(["filesystem", "sync"]).arg(dir).ok().map(drop)
    })?;
    let cat = |device: &Path, name: &str| {
        let cat = bench.creamery().run(["cat"]).arg("--device").arg(device);
        cat.arg(inside(set.first(), name))
    };
    let whole = cat(&set.members[1], "/nocow").ok()?;
    ensure!(whole.stdout == vec![b'N'; 300_000], "not what was written last");
    expect_failure(cat(&old, "/nocow"), &["missed writes", "no checksum"])?;
    // What has checksums may have been there before.
    cat(&old, "/file-1").ok().map(drop)
}

/// A filesystem that was made from a seed has that as a device, which is found beside it, whatever other seeds lie there.
fn made_from_seed(bench: &Bench) -> Result<()> {
    let (seed, sprout) = seed_and_sprout(bench)?;
    let other = sprout.with_file_name("other.img");
    sparse_file(&other, MEMBER)?;
    Run::new("mkfs.btrfs").arg("-q").arg(&other).ok()?;
    let cat =
        |options: &[&str], path: &str| bench.creamery().run(["cat"]).args(options).arg(inside(&sprout, path));
    ensure!(cat(&[], "/old").ok()?.stdout_text() == "old" && cat(&[], "/new").ok()?.stdout_text() == "new");
    let checked = bench.creamery().run(["check", "--check-data-csum"]).arg(&sprout).ok()?;
    ensure!(checked.stdout_text().contains(": 0 errors, 0 warnings"), "{checked}");
    let away = bench.scratch.file("seed.img");
    std::fs::rename(&seed, &away)?;
    Run::new("btrfstune").args(["-f", "-S", "1"]).arg(&other).ok()?;
    expect_refusal(cat(&[], "/old"), &["device 1 is missing", "--device PATH"])?;
    let named = cat(&["--device", &away.display().to_string()], "/old").ok()?;
    ensure!(named.stdout_text() == "old", "{named}");
    Ok(())
}

/// A seed, and beside it the device of the filesystem that was made from it.
pub(crate) fn seed_and_sprout(bench: &Bench) -> Result<(PathBuf, PathBuf)> {
    let dir = bench.scratch.dir("set")?;
    let [seed, sprout] = ["seed.img", "sprout.img"].map(|name| dir.join(name));
    for file in [&seed, &sprout] {
        sparse_file(file, MEMBER)?;
    }
    Run::new("mkfs.btrfs").arg("-q").arg(&seed).ok()?;
    with_kernel(bench, std::slice::from_ref(&seed), "rw", |dir| Ok(std::fs::write(dir.join("old"), "old")?))?;
    Run::new("btrfstune").args(["-f", "-S", "1"]).arg(&seed).ok()?;
    let added = LoopDevice::attach(&sprout, false)?;
    let mut mount = LoopMount::mount(&seed, &bench.scratch.file("kernel"), "rw")?;
    Run::new("btrfs").args(["-q", "device", "add", "-f"]).arg(added.path()).arg(mount.dir()).ok()?;
    Run::new("mount").args(["-o", "remount,rw"]).arg(mount.dir()).ok()?;
    std::fs::write(mount.dir().join("new"), "new")?;
    mount.unmount_and_tell()?;
    added.detach()?;
    Ok((seed, sprout))
}
