//! Subvolumes of a live mount: through the program's commands, and through the controls that other programs send to Linux' Btrfs.

use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, Judge, Run, btrfs_check, create_subvolume, is_napping, until};

use crate::support::{MOUNTED, expect_refusal, inside, judge_mount, mkfs_empty};

pub(crate) fn cases() -> Vec<Case> {
    let with_users = [&MOUNTED[..], &[Judge::Tool("setpriv")]].concat();
    vec![
        Case::new("subvolumes/on-a-live-mount", &MOUNTED, commands),
        Case::new("subvolumes/in-use-on-a-live-mount", &MOUNTED, in_use),
        Case::new("subvolumes/recursively-and-by-number", &MOUNTED, recursively),
        Case::new("subvolumes/of-other-users", &with_users, other_users),
        Case::new("subvolumes/many-at-once-on-a-live-mount", &MOUNTED, many_at_once),
        Case::new("subvolumes/numbers-on-a-live-mount", &MOUNTED, numbers),
        Case::new("subvolumes/a-remount-waits-for-controls", &MOUNTED, remounted_meanwhile),
    ]
}

/// `creamery subvolume WORDS`.
pub(crate) fn subvolume(bench: &Bench, words: &[&str]) -> Run {
    bench.creamery().run(["subvolume"]).args(words)
}

/// The names in a directory, from a listing.
pub(crate) fn names(dir: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        names.push(entry?.file_name().into_string().ok().context("a name of ours")?);
    }
    names.sort();
    Ok(names)
}

fn mounted(bench: &Bench, options: &str) -> Result<(PathBuf, FuseMount)> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "300M", &image)?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), options)?;
    Ok((image, mount))
}

/// Right after each command, listings and lookups show its change, although the kernel has cached the answers from before.
fn commands(bench: &Bench) -> Result<()> {
    let (image, mount) = mounted(bench, "")?;
    let dir = mount.dir().to_owned();
    std::fs::create_dir(dir.join("inside"))?;
    for round in 0..20 {
        let at = if round % 2 == 0 { dir.clone() } else { dir.join("inside") };
        let (work, copy) = (at.join(format!("work-{round}")), at.join(format!("copy-{round}")));
        let before = names(&at)?;
        ensure!(names(&at)? == before, "listed twice, the second time from memory");
        let changed = std::fs::metadata(&at)?.mtime_nsec();
        ensure!(!work.exists() && !copy.exists(), "the kernel knows that there is none");
        subvolume(bench, &["create"]).arg(&work).ok()?;
        ensure!(work.is_dir(), "round {round}: not to be found after it was made");
        let listed = subvolume(bench, &["list"]).arg(&dir).ok()?.stdout_text();
        ensure!(listed.contains(&format!("work-{round}\n")), "round {round}: not in the list: {listed}");
        ensure!(names(&at)?.len() == before.len() + 1, "round {round}: not listed");
        ensure!(std::fs::metadata(&at)?.mtime_nsec() != changed, "round {round}: the directory's time");
        std::fs::write(work.join("file"), format!("of round {round}"))?;
        let options: &[&str] = if round % 3 == 0 { &["snapshot", "-r"] } else { &["snapshot"] };
        subvolume(bench, options).arg(&work).arg(&copy).ok()?;
        ensure!(
            std::fs::read_to_string(copy.join("file"))? == format!("of round {round}"),
            "what was written"
        );
        let refused = std::fs::write(copy.join("new"), "").is_err();
        ensure!(refused == (round % 3 == 0), "round {round}: read-only is {refused}");
        if round % 5 != 0 {
            subvolume(bench, &["delete"]).arg(&work).ok()?;
            ensure!(!work.exists() && copy.is_dir(), "round {round}: after it was deleted");
            let listed = subvolume(bench, &["list"]).arg(&dir).ok()?.stdout_text();
            ensure!(
                !listed.contains(&format!("work-{round}\n")),
                "round {round}: still in the list: {listed}"
            );
            ensure!(names(&at)?.len() == before.len() + 1, "round {round}: listed after it was deleted");
            std::fs::write(&work, "the name is free")?;
        }
    }
    // In an existing directory the snapshot gets its source's name, as in btrfs-progs.
    subvolume(bench, &["snapshot"]).arg(dir.join("work-0")).arg(dir.join("inside")).ok()?;
    ensure!(dir.join("inside/work-0/file").is_file(), "a snapshot in a directory");
    subvolume(bench, &["create", "-p"]).arg(dir.join("far/away/there")).ok()?;
    ensure!(dir.join("far/away/there").is_dir(), "with its parents");
    bench.creamery().run(["property", "set"]).arg(dir.join("work-0")).args(["ro", "true"]).ok()?;
    ensure!(std::fs::write(dir.join("work-0/file"), "").is_err(), "read-only now");
    bench.creamery().run(["property", "set"]).arg(dir.join("work-0")).args(["ro", "false"]).ok()?;
    std::fs::write(dir.join("work-0/file"), "again")?;
    refused(bench, &dir)?;
    subvolume(bench, &["set-default"]).arg(dir.join("work-0")).ok()?;
    expect_refusal(
        subvolume(bench, &["delete"]).arg(dir.join("work-0")),
        &["work-0", "the default subvolume"],
    )?;
    subvolume(bench, &["set-default", "5"]).arg(&dir).ok()?;
    judge_mount(bench, &image, mount)
}

/// Each refusal is one line.
fn refused(bench: &Bench, dir: &Path) -> Result<()> {
    let at = |name: &str| dir.join(name);
    std::fs::write(at("a-file"), "")?;
    let long = "n".repeat(256);
    let rows: [(&[&str], &str, &str, &[&str]); 8] = [
        (&["create"], "work-0", "", &["work-0", "exists"]),
        (&["create"], "a-file", "", &["a-file", "exists"]),
        (&["create"], &long, "", &["too long"]),
        (&["create"], "nothing/new", "", &["nothing"]),
        (&["snapshot"], "inside", "new", &["not the root of a subvolume"]),
        (&["snapshot"], "work-0", "a-file", &["exists"]),
        (&["delete"], "inside", "", &["inside", "not a subvolume"]),
        (&["delete"], "missing", "", &["missing", "not found"]),
    ];
    for (words, first, second, said) in rows {
        let run = subvolume(bench, words).arg(at(first));
        let run = if second.is_empty() { run } else { run.arg(at(second)) };
        expect_refusal(run, said).with_context(|| format!("{words:?} {first} {second}"))?;
    }
    expect_refusal(subvolume(bench, &["delete"]).arg(dir), &["mount"])?;
    let outside = bench.scratch.path().join("new");
    expect_refusal(
        subvolume(bench, &["create"]).arg(outside),
        &["not on a mount of an image", "IMAGE:/PATH"],
    )?;
    expect_refusal(subvolume(bench, &["sync"]).arg(dir).arg("256"), &["256", "not deleted"])
}

/// A process with an open file or working directory in a deleted subvolume goes on; the space comes back when the process leaves.
fn in_use(bench: &Bench) -> Result<()> {
    // The commit timer must not interfere.
    let (image, mount) = mounted(bench, "commit=3600")?;
    let work = mount.dir().join("work");
    subvolume(bench, &["create"]).arg(&work).ok()?;
    std::fs::create_dir_all(work.join("deep/down"))?;
    std::fs::write(work.join("file"), [7; 300_000])?;
    std::fs::write(work.join("deep/down/other"), "still here")?;
    let mut open = std::fs::File::open(work.join("file"))?;
    let mut other = std::fs::File::open(work.join("deep/down/other"))?;
    let mut inside =
        std::process::Command::new("sleep").arg("1000").current_dir(work.join("deep/down")).spawn()?;
    let cwd = PathBuf::from(format!("/proc/{}/cwd", inside.id()));
    let mut used = || -> Result<()> {
        subvolume(bench, &["delete"]).arg(&work).ok()?;
        ensure!(!work.exists(), "after it was deleted");
        bench.creamery().run(["sync"]).arg(mount.dir()).ok()?;
        ensure!(names(&cwd)? == ["other"], "listed from inside");
        let mut more = String::new();
        other.read_to_string(&mut more)?;
        ensure!(more == "still here", "what else was open");
        let mut content = Vec::new();
        open.read_to_end(&mut content)?;
        ensure!(content == [7; 300_000], "what was open");
        let mut waits = Command::new(bench.creamery().path());
        waits.args(["subvolume", "sync", "-s", "3000"]).arg(mount.dir()).stderr(Stdio::null());
        let mut waits = waits.spawn()?;
        let asked = until("it to have asked, and to look again", || {
            ensure!(waits.try_wait()?.is_none(), "it does not wait for who is inside");
            is_napping(waits.id())
        });
        waits.kill()?;
        waits.wait()?;
        asked
    };
    let outcome = used();
    inside.kill()?;
    inside.wait()?;
    outcome?;
    drop((open, other));
    // The name can be used again while the old subvolume is dropped.
    subvolume(bench, &["create"]).arg(&work).ok()?;
    ensure!(names(&work)?.is_empty(), "the new one");
    subvolume(bench, &["sync"]).arg(mount.dir()).arg("256").ok()?;
    judge_mount(bench, &image, mount)?;
    let said =
        Run::new("btrfs").args(["inspect-internal", "dump-tree", "-t", "1"]).arg(&image).ok()?.stdout_text();
    ensure!(!said.contains("ORPHAN_ITEM"), "something is left");
    Ok(())
}

/// Deletes subvolumes with nested ones, and by number, on a mount and in an image.
fn recursively(bench: &Bench) -> Result<()> {
    let (image, mount) = mounted(bench, "")?;
    let paths = ["a", "a/b", "a/b/c", "a/d", "e"];
    let create = |bench: &Bench| -> Result<()> {
        paths
            .iter()
            .try_for_each(|path| subvolume(bench, &["create"]).arg(mount.dir().join(path)).ok().map(drop))
    };
    create(bench)?;
    let a = mount.dir().join("a");
    expect_refusal(subvolume(bench, &["delete"]).arg(&a), &["contains subvolume", "-R"])?;
    let said = subvolume(bench, &["delete", "-R", "-c"]).arg(&a).ok()?.stdout_text();
    let lines: Vec<&str> = said.lines().collect();
    let whole = |name: &str| mount.dir().join(name).display().to_string();
    ensure!(
        lines.len() == 4 && lines[3] == format!("Delete subvolume 256 (commit): '{}'", whole("a")),
        "{said}"
    );
    ensure!(lines.iter().any(|line| line.ends_with(&format!("(commit): '{}'", whole("a/b/c")))), "{said}");
    ensure!(names(mount.dir())? == ["e"], "all of them");
    expect_refusal(subvolume(bench, &["delete", "-i", "5"]).arg(mount.dir()), &["is mounted"])?;
    expect_refusal(subvolume(bench, &["delete", "-i", "256"]).arg(mount.dir()), &["256"])?;
    subvolume(bench, &["delete", "-C", "-i", "260"]).arg(mount.dir()).ok()?;
    ensure!(names(mount.dir())?.is_empty(), "by its number");
    create(bench)?;
    mount.unmount()?;
    subvolume(bench, &["delete", "-i", "265"]).arg(&image).ok()?;
    let said = subvolume(bench, &["delete", "-R"]).arg(inside(&image, "/a")).ok()?.stdout_text();
    ensure!(said.lines().count() == 4, "{said}");
    btrfs_check(&image)?;
    // The mounted subvolume stays, also if an operand elsewhere names it.
    subvolume(bench, &["create"]).arg(inside(&image, "/top")).arg(inside(&image, "/top/inner")).ok()?;
    let mount = FuseMount::mount(bench.creamery(), &image, mount_point(bench).as_path(), "subvol=top")?;
    expect_refusal(subvolume(bench, &["delete", "-R", "-i", "256"]).arg(mount.dir()), &["is mounted"])?;
    ensure!(names(mount.dir())? == ["inner"], "nothing is gone");
    mount.unmount()?;
    btrfs_check(&image)
}

pub(crate) fn mount_point(bench: &Bench) -> PathBuf {
    bench.scratch.file("fuse")
}

pub(crate) const AS_NOBODY: [&str; 4] = ["--reuid=65534", "--regid=65534", "--clear-groups", "--"];

/// Opens the folder of the case to all users, and copies the program there.
pub(crate) fn for_everybody(bench: &Bench) -> Result<PathBuf> {
    std::fs::set_permissions(bench.scratch.path(), std::fs::Permissions::from_mode(0o755))?;
    let copy = bench.scratch.file("creamery");
    bench.creamery().copy_to(&copy)?;
    Ok(copy)
}

/// Permission to create names in a directory is enough to make subvolumes there; the owner of a subvolume can snapshot it; only root can delete.
fn other_users(bench: &Bench) -> Result<()> {
    let (image, mount) = mounted(bench, "allow_other")?;
    let program = for_everybody(bench)?;
    let nobody =
        |words: &[&str]| Run::new("setpriv").args(AS_NOBODY).arg(&program).args(["subvolume"]).args(words);
    let at = |name: &str| mount.dir().join(name);
    for (name, mode) in [("open", 0o777), ("closed", 0o755), ("blind", 0o766)] {
        std::fs::create_dir(at(name))?;
        std::fs::set_permissions(at(name), std::fs::Permissions::from_mode(mode))?;
    }
    nobody(&["create"]).arg(at("open/mine")).ok()?;
    let meta = std::fs::metadata(at("open/mine"))?;
    ensure!((meta.uid(), meta.gid()) == (65534, 65534), "owned by {} {}", meta.uid(), meta.gid());
    subvolume(bench, &["create"]).arg(at("open/roots")).ok()?;
    nobody(&["snapshot", "-r"]).arg(at("open/mine")).arg(at("open/kept")).ok()?;
    let not_permitted: &[&str] = &["not permitted"];
    expect_refusal(nobody(&["create"]).arg(at("closed/new")), not_permitted)?;
    expect_refusal(nobody(&["create"]).arg(at("blind/new")), not_permitted)?;
    expect_refusal(nobody(&["create"]).arg(at("open/mine")), &["exists"])?;
    expect_refusal(nobody(&["snapshot"]).arg(at("open/roots")).arg(at("open/copy")), not_permitted)?;
    expect_refusal(nobody(&["snapshot"]).arg(at("open/mine")).arg(at("closed/copy")), not_permitted)?;
    expect_refusal(nobody(&["delete"]).arg(at("open/mine")), not_permitted)?;
    expect_refusal(nobody(&["delete", "-i", "256"]).arg(mount.dir()), not_permitted)?;
    expect_refusal(nobody(&["set-default"]).arg(at("open/mine")), not_permitted)?;
    for words in [&["list"][..], &["show"], &["get-default"]] {
        expect_refusal(nobody(words).arg(at("open/mine")), not_permitted)?;
    }
    expect_refusal(nobody(&["find-new"]).arg(at("open/mine")).arg("0"), not_permitted)?;
    let property = |name: &str| {
        let run = Run::new("setpriv").args(AS_NOBODY).arg(&program).args(["property", "set"]);
        run.arg(at(name)).args(["ro", "true"])
    };
    expect_refusal(property("open/roots"), not_permitted)?;
    property("open/mine").ok()?;
    // Only an entry of the ACL grants the permission.
    if Run::new("setfacl")
        .args(["-m", "u:65534:rwx"])
        .arg(at("closed"))
        .output()
        .is_ok_and(|run| run.code == Some(0))
    {
        nobody(&["create"]).arg(at("closed/new")).ok()?;
        Run::new("setfacl").args(["-m", "m::r-x"]).arg(at("closed")).ok()?;
        expect_refusal(nobody(&["create"]).arg(at("closed/newer")), not_permitted)?;
    }
    judge_mount(bench, &image, mount)?;
    // A read-only mount refuses it, from root too.
    let mount = FuseMount::mount(bench.creamery(), &image, &mount_point(bench), "")?;
    Run::new("mount").args(["-i", "-o", "remount,ro"]).arg(mount.dir()).ok()?;
    let at = |name: &str| mount.dir().join(name);
    expect_refusal(subvolume(bench, &["create"]).arg(at("new")), &["read-only"])?;
    expect_refusal(subvolume(bench, &["delete"]).arg(at("open/mine")), &["read-only"])?;
    mount.unmount()?;
    btrfs_check(&image)
}

/// Several threads make, look up and delete in one directory while others list it: no thread waits for ever, and each sees its own changes.
fn many_at_once(bench: &Bench) -> Result<()> {
    const THREADS: usize = 6;
    const ROUNDS: usize = 12;
    let (image, mount) = mounted(bench, "")?;
    let dir = mount.dir().to_owned();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| -> Result<()> {
        let looks = scope.spawn(|| -> Result<()> {
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                for name in names(&dir)? {
                    let _ = std::fs::metadata(dir.join(name)); // it may be gone
                }
            }
            Ok(())
        });
        let works: Vec<_> = (0..THREADS)
            .map(|thread| {
                let dir = &dir;
                scope.spawn(move || -> Result<()> {
                    for round in 0..ROUNDS {
                        let path = dir.join(format!("of-{thread}-{round}"));
                        let copy = dir.join(format!("copy-{thread}-{round}"));
                        ensure!(!path.exists() && !copy.exists(), "{}: before", path.display());
                        subvolume(bench, &["create"]).arg(&path).ok()?;
                        std::fs::write(path.join("file"), path.as_os_str().as_encoded_bytes())?;
                        if round % 4 == 0 {
                            subvolume(bench, &["snapshot"]).arg(&path).arg(&copy).ok()?;
                            ensure!(copy.join("file").is_file(), "{}: the snapshot", path.display());
                        }
                        subvolume(bench, &["delete"]).arg(&path).ok()?;
                        ensure!(!path.exists(), "{}: after", path.display());
                    }
                    Ok(())
                })
            })
            .collect();
        let outcomes: Vec<_> = works.into_iter().map(|work| work.join().expect("no panic")).collect();
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        looks.join().expect("no panic")?;
        outcomes.into_iter().collect::<Result<()>>()
    })?;
    ensure!(names(&dir)?.len() == THREADS * ROUNDS / 4, "the snapshots are left");
    subvolume(bench, &["sync"]).arg(&dir).ok()?;
    judge_mount(bench, &image, mount)
}

/// Inode numbers differ between all subvolumes of a mount, and are equal on the next mount.
fn numbers(bench: &Bench) -> Result<()> {
    let (image, mount) = mounted(bench, "")?;
    let fill = |dir: &Path| (0..20).try_for_each(|number| std::fs::write(dir.join(format!("{number}")), ""));
    fill(mount.dir())?;
    for name in ["a", "b", "a/c"] {
        subvolume(bench, &["create"]).arg(mount.dir().join(name)).ok()?;
        fill(&mount.dir().join(name))?;
    }
    subvolume(bench, &["snapshot"]).arg(mount.dir().join("b")).arg(mount.dir().join("d")).ok()?;
    let all = |dir: &Path| -> Result<Vec<(PathBuf, u64)>> {
        let mut found = vec![(PathBuf::new(), std::fs::metadata(dir)?.ino())];
        for sub in ["", "a", "b", "a/c", "d"] {
            for name in names(&dir.join(sub))? {
                let path = Path::new(sub).join(name);
                let ino = std::fs::symlink_metadata(dir.join(&path))?.ino();
                found.push((path, ino));
            }
        }
        Ok(found)
    };
    let before = all(mount.dir())?;
    let different: std::collections::BTreeSet<u64> = before.iter().map(|(_, ino)| *ino).collect();
    ensure!(different.len() == before.len(), "two have the same number");
    mount.unmount()?;
    let mount = FuseMount::mount(bench.creamery(), &image, &mount_point(bench), "")?;
    // The next mount assigns them in another order.
    names(&mount.dir().join("d"))?;
    ensure!(all(mount.dir())? == before, "other numbers than before");
    judge_mount(bench, &image, mount)
}

/// Threads make subvolumes until the mount is read-only. Once `remount,ro` has returned, the image does not change, and it has every
/// subvolume that was reported as made.
fn remounted_meanwhile(bench: &Bench) -> Result<()> {
    const THREADS: usize = 4;
    const ROUNDS: usize = 10;
    let (image, mount) = mounted(bench, "")?;
    let superblock = || -> Result<Vec<u8>> {
        let mut bytes = vec![0; 4096];
        std::fs::File::open(&image)?.read_exact_at(&mut bytes, 64 << 10)?;
        Ok(bytes)
    };
    let remount = |flag: &str| {
        let option = format!("remount,{flag}");
        bench.creamery().run(["mount", "-o", &option]).arg(&image).arg(mount.dir()).again_while_busy().ok()
    };
    let mut made = Vec::new();
    for round in 0..ROUNDS {
        let begun = AtomicUsize::new(0);
        made.extend(std::thread::scope(|scope| -> Result<Vec<String>> {
            let makers: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let (begun, dir) = (&begun, mount.dir());
                    scope.spawn(move || make_until_read_only(dir, &format!("{round}-{thread}"), begun))
                })
                .collect();
            until("a subvolume is made", || Ok(begun.load(Ordering::Relaxed) > round))?;
            let remounted = remount("ro").and_then(|_| superblock());
            let made: Vec<_> = makers.into_iter().map(|maker| maker.join().expect("no panic")).collect();
            let before = remounted?;
            ensure!(superblock()? == before, "round {round}: the image changed behind the remount");
            Ok(made.into_iter().collect::<Result<Vec<_>>>()?.concat())
        })?);
        remount("rw")?;
    }
    made.sort();
    ensure!(names(mount.dir())? == made, "not these were made: {made:?}");
    judge_mount(bench, &image, mount)
}

/// Makes subvolumes in `dir` until the mount is read-only, and counts them; returns their names. The number of subvolumes is limited: from the
/// limit on it asks for the last one again, which exists.
fn make_until_read_only(dir: &Path, prefix: &str, made: &AtomicUsize) -> Result<Vec<String>> {
    const MOST: usize = 30;
    let dir = std::fs::File::open(dir)?;
    let mut names = Vec::new();
    loop {
        let name = format!("{prefix}-{}", names.len().min(MOST - 1));
        match create_subvolume(&dir, &name) {
            Ok(()) => names.push(name),
            Err(rustix::io::Errno::EXIST) if names.len() == MOST => {}
            Err(rustix::io::Errno::ROFS) => return Ok(names),
            Err(error) => return Err(error.into()),
        }
        made.fetch_add(1, Ordering::Relaxed);
    }
}
