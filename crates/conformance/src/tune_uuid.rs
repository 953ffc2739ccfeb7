//! `btrfstune -u` and `-U`: writes another UUID to all tree blocks, with ours and with that of btrfs-progs; one stops in the middle and the
//! other one goes on.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Result, bail, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::walk::{Compare, Walk, expect_same};
use creamery_testkit::{Judge, LoopMount, Run, Signal, btrfs_check, signal};

use crate::hostile::Victim;
use crate::item_types::{METADATA_ITEM, ROOT_ITEM};
use crate::support::{
    JUDGED, expect_refusal, expect_untouched, inside, mkfs_empty, mkfs_from, torture_source,
};

pub(crate) fn cases() -> Vec<Case> {
    let judged = [&JUDGED[..], &[Judge::Tool("btrfstune")]].concat();
    vec![
        Case::new("tune/uuid-of-blocks-that-the-extent-tree-lacks", &[Judge::Program], unlisted_block),
        Case::new(
            "tune/uuid-of-blocks-that-a-dropped-tree-shares",
            &[Judge::Program],
            unlisted_block_of_a_dropped_tree,
        ),
        Case::new("tune/uuid-in-all-blocks", &judged, in_all_blocks),
        Case::new("tune/uuid-refused", &judged, refused),
        Case::new("tune/uuid-ended-in-the-middle", &judged, ended_in_the_middle),
    ]
}

/// The UUID of this case: other cases run at the same time, and Linux mounts no two filesystems with one UUID.
const EVERYWHERE: &str = "5c0ac001-1111-4222-8333-000000000001";
const SEED: &str = "5c0ac001-1111-4222-8333-000000000002";
const UUIDS: [&str; 3] = [
    "5c0ac001-1111-4222-8333-000000000003",
    "5c0ac001-1111-4222-8333-000000000004",
    "5c0ac001-1111-4222-8333-000000000005",
];
/// Maximum tries to stop a program in the middle.
const TRIES: usize = 60;
/// Files: their tree blocks are so many that there is a middle.
const FILES: usize = 20_000;

fn copy(from: &Path, to: &Path) -> Result<()> {
    Run::new("cp").arg("--sparse=always").arg(from).arg(to).ok().map(drop)
}

/// The content of all blocks, without the chunk tree's UUID, which is random.
fn told(image: &Path) -> Result<String> {
    let tree = Run::new("btrfs").args(["inspect-internal", "dump-tree"]).arg(image).ok()?.stdout_text();
    let tree = tree.lines().filter(|line| !line.starts_with("chunk uuid"));
    let superblock =
        Run::new("btrfs").args(["inspect-internal", "dump-super"]).arg(image).ok()?.stdout_text();
    let superblock =
        superblock.lines().filter(|line| !line.starts_with("superblock:") && !line.starts_with("csum\t"));
    Ok(tree.chain(superblock).map(|line| format!("{line}\n")).collect())
}

/// Equal words have an equal effect in every block, and Linux and we go on with it.
fn in_all_blocks(bench: &Bench) -> Result<()> {
    let (ours, theirs) = (bench.scratch.file("ours.img"), bench.scratch.file("theirs.img"));
    let (source, want) = torture_source(bench)?;
    mkfs_empty(bench.creamery(), &[], "256M", &ours)?;
    bench.creamery().run(["cp", "-a"]).arg(&source).arg(inside(&ours, "/before")).ok()?;
    copy(&ours, &theirs)?;
    let first = told(&ours)?;
    let said = bench.creamery().run(["tune", "-f", "-U", EVERYWHERE]).arg(&ours).ok()?.stdout_text();
    ensure!(said.contains(&format!("New fsid: {EVERYWHERE}\nFsid change finished")), "{said}");
    Run::new("btrfstune").args(["-f", "-U", EVERYWHERE]).arg(&theirs).ok()?;
    let (found, wanted) = (told(&ours)?, told(&theirs)?);
    ensure!(found == wanted && found != first, "not as btrfs-progs has it");
    // With a question, and with a random UUID.
    bench.creamery().run(["tune", "-u"]).arg(&ours).input("yes\n").ok()?;
    ensure!(!told(&ours)?.contains(EVERYWHERE), "the UUID is the same");
    for copy in ["0", "1"] {
        let said = Run::new("btrfs").args(["inspect-internal", "dump-super", "-s", copy]).arg(&ours).ok()?;
        ensure!(said.stdout_text().contains("[match]"), "copy {copy}: {said}");
    }
    bench.creamery().run(["check", "--check-data-csum"]).arg(&ours).ok()?;
    btrfs_check(&ours)?;
    let mount = LoopMount::mount(&ours, &bench.scratch.file("kernel"), "")?;
    Run::new("cp").arg("-a").arg(&source).arg(mount.dir().join("theirs")).ok()?;
    expect_same("before", &want, &Walk::take(&mount.dir().join("before"))?, &Compare::default())?;
    mount.unmount()?;
    bench.creamery().run(["cp", "-a"]).arg(&source).arg(inside(&ours, "/ours")).ok()?;
    btrfs_check(&ours)
}

/// Cases in which btrfstune refuses, and those in which it should.
fn refused(bench: &Bench) -> Result<()> {
    let (image, theirs) = (bench.scratch.file("disk.img"), bench.scratch.file("theirs.img"));
    mkfs_empty(bench.creamery(), &[], "128M", &image)?;
    let own = Run::new("blkid").args(["-o", "value", "-s", "UUID"]).arg(&image).ok()?.stdout_text();
    let own = own.trim();
    let run = |words: &[&str]| bench.creamery().run(["tune"]).args(words).arg(&image);
    let both_refuse = |words: &[&str], said: &[&str]| {
        expect_refusal(run(words), said)?;
        copy(&image, &theirs)?;
        let by_theirs = Run::new("btrfstune").args(words).arg(&theirs).output()?;
        ensure!(by_theirs.code == Some(1), "{words:?}: {by_theirs}");
        Ok(())
    };
    expect_untouched(&image, || {
        // btrfstune refuses a UUID that blkid(8) remembers of any file; and it accepts the present one, and writes all blocks unchanged.
        let same = run(&["-f", "-U", own]).ok()?.stderr_text();
        ensure!(same.contains(own) && same.contains("and nothing is changed"), "{same}");
        expect_refusal(run(&["-M", own]), &[own, "already"])?;
        for words in [["-f", "-U"], ["-f", "-M"]] {
            for uuid in [&SEED.replace('-', ""), &format!("{{{SEED}}}"), &format!("{SEED} "), "no UUID"] {
                both_refuse(&[words[0], words[1], uuid], &["dashes"])?;
            }
        }
        both_refuse(&["-f", "-u", "-m"], &["-m"])?;
        let asked = run(&["-u"]).input("no\n").output()?;
        ensure!(asked.code == Some(1) && asked.stderr_text().contains("the UUID is unchanged"), "{asked}");
        Ok(())
    })?;
    run(&["-m"]).ok()?;
    both_refuse(&["-f", "-u"], &["METADATA_UUID", own])?;
    run(&["-M", own]).ok()?;
    // The seed flag does not make it refuse.
    run(&["-S", "1"]).ok()?;
    run(&["-f", "-U", SEED]).ok()?;
    btrfs_check(&image)?;
    run(&["-f", "-S", "0"]).ok()?;
    // Blocks of a log would keep the old UUID.
    let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "")?;
    std::fs::write(mount.dir().join("file"), "in a commit")?;
    Run::new("sync").arg("-f").arg(mount.dir()).ok()?;
    let file = File::options().append(true).open(mount.dir().join("file"))?;
    file.write_at(b"in a log", 0)?;
    file.sync_all()?;
    drop(file);
    let log = bench.scratch.file("log.img");
    copy(&image, &log)?;
    mount.unmount()?;
    expect_untouched(&log, || {
        expect_refusal(
            bench.creamery().run(["tune", "-f", "-u"]).arg(&log),
            &["the log is not replayed", "creamery touch"],
        )
    })
}

/// Whether the first superblock is marked as changing its UUID.
fn is_changing(image: &File) -> bool {
    const FLAGS: u64 = (64 << 10) + 56;
    let mut flags = [0; 8];
    image.read_exact_at(&mut flags, FLAGS).is_ok() && u64::from_le_bytes(flags) & 1 << 35 != 0
}

/// Runs a program on a copy of `whole` and stops it by a signal in the middle; repeats that until it succeeds. Returns the last output.
fn end_in_the_middle(
    whole: &Path,
    image: &Path,
    program: &Path,
    words: &[&str],
    by: Signal,
) -> Result<String> {
    for _ in 0..TRIES {
        copy(whole, image)?;
        let file = File::open(image)?;
        // The watching thread must see the middle, also on a busy machine; and SIGINT, which tests in the background ignore, must end the
        // program.
        let mut command = Command::new("env");
        command
            .args(["--default-signal=INT", "nice", "-n", "19"])
            .arg(program)
            .args(words)
            .arg(image)
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn()?;
        while !is_changing(&file) && child.try_wait()?.is_none() {
            std::hint::spin_loop();
        }
        if child.try_wait()?.is_none() {
            signal(by, child.id())?;
        }
        let ended = child.wait_with_output()?;
        if is_changing(&file) {
            return Ok(String::from_utf8_lossy(&ended.stderr).into_owned());
        }
    }
    bail!("{} is never in the middle", program.display())
}

/// Stopped by SIGKILL, or by SIGINT (with a message on how to go on): the image cannot be opened, and either program completes the change.
fn ended_in_the_middle(bench: &Bench) -> Result<()> {
    let (whole, image) = (bench.scratch.file("whole.img"), bench.scratch.file("disk.img"));
    let names = bench.scratch.dir("names")?;
    for number in 0..FILES {
        File::create(names.join(format!("{number:05}-{}", "n".repeat(60))))?;
    }
    mkfs_empty(bench.creamery(), &[], "256M", &whole)?;
    bench.creamery().run(["cp", "-a"]).arg(&names).arg(inside(&whole, "/names")).ok()?;
    let ours = bench.creamery().path().to_owned();
    // btrfstune is too fast to watch: it stops where it would write the second copies of its blocks. It takes a UUID that was mounted a
    // moment ago for one in use.
    let theirs = PathBuf::from("prlimit");
    let by_theirs = &["--fsize=73400320", "btrfstune", "-f", "-U", UUIDS[2]][..];
    for (program, words, by, uuid) in [
        (&ours, &["tune", "-f", "-U", UUIDS[0]][..], Signal::KILL, UUIDS[0]),
        (&ours, &["tune", "-f", "-U", UUIDS[1]], Signal::INT, UUIDS[1]),
        (&theirs, by_theirs, Signal::KILL, UUIDS[2]),
    ] {
        let said = end_in_the_middle(&whole, &image, program, words, by)?;
        ensure!(by != Signal::INT || said.contains("creamery tune -u"), "{said}");
        expect_untouched(&image, || {
            for refused in [&["ls"][..], &["check"], &["restore", "-l"], &["tune", "-r"], &["tune", "-m"]] {
                expect_refusal(bench.creamery().run(refused).arg(&image), &["CHANGING_FSID", "tune -u"])?;
            }
            let other = bench.creamery().run(["tune", "-f", "-U", EVERYWHERE]).arg(&image);
            expect_refusal(other, &[uuid, "interrupted change"])
        })?;
        ensure!(LoopMount::mount(&image, &bench.scratch.file("kernel"), "ro").is_err(), "Linux mounts it");
        let other = bench.scratch.file("other.img");
        copy(&image, &other)?;
        bench.creamery().run(["tune", "-f", "-u"]).arg(&image).ok()?;
        Run::new("btrfstune").args(["-f", "-u"]).arg(&other).ok()?;
        for image in [&image, &other] {
            let found = Run::new("blkid").args(["-o", "value", "-s", "UUID"]).arg(image).ok()?.stdout_text();
            ensure!(found.trim() == uuid, "{found}");
            btrfs_check(image)?;
            bench.creamery().run(["check", "--check-data-csum"]).arg(image).ok()?;
        }
        ensure!(told(&image)? == told(&other)?, "ours and btrfs-progs end it in another way");
        let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "")?;
        expect_same(
            "names",
            &Walk::take(&names)?,
            &Walk::take(&mount.dir().join("names"))?,
            &Compare::default(),
        )?;
        mount.unmount()?;
    }
    Ok(())
}

/// Checks that the UUID and all bytes are unchanged, and that the `count` files of a directory can be read.
fn expect_refusal_for_unlisted(bench: &Bench, image: &Path, dir: &str, count: usize) -> Result<()> {
    expect_untouched(image, || {
        let run = bench.creamery().run(["tune", "-f", "-u"]).arg(image);
        expect_refusal(run, &["disk.img", "extent tree lacks"])
    })?;
    let out = bench.scratch.file("out");
    bench.creamery().run(["cp", "-r"]).arg(inside(image, dir)).arg(&out).ok()?;
    ensure!(std::fs::read_dir(&out)?.count() == count, "files are missing");
    Ok(())
}

/// A leaf of the file tree that the extent tree lacks would keep the old UUID, and its files would be lost: so nothing is changed.
fn unlisted_block(bench: &Bench) -> Result<()> {
    const FILES_TREE: u64 = 5;
    let image = bench.scratch.file("disk.img");
    let source = bench.scratch.dir("source")?;
    for number in 0..200 {
        std::fs::write(source.join(number.to_string()), [number; 300])?;
    }
    mkfs_from(bench.creamery(), &["--csum", "crc32c", "--nodesize", "16k", "-b", "256M"], &source, &image)?;
    let mut victim = Victim::new(image.clone())?;
    let removed = victim.remove_item(METADATA_ITEM, &|key, data| {
        let word = |bytes: &[u8], at: usize| bytes[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
        // A leaf to which only the file tree refers.
        word(key, 9) == 0 && data.len() == 33 && word(data, 25) == FILES_TREE
    })?;
    ensure!(removed > 0, "the extent tree lists no leaf of the files");
    drop(victim);
    expect_refusal_for_unlisted(bench, &image, "/", 200)
}

/// A subvolume that is being dropped may lack blocks. Its snapshot, which shares them and is not dropped, may not.
fn unlisted_block_of_a_dropped_tree(bench: &Bench) -> Result<()> {
    const DROPPED: u64 = 256;
    const REFS: usize = 216;
    const FILES: usize = 4000;
    let image = bench.scratch.file("disk.img");
    let source = bench.scratch.dir("source")?;
    // Three levels, so that both trees share a node above the leaf.
    std::fs::create_dir(source.join("subvolume"))?;
    for number in 0..FILES {
        std::fs::write(source.join(format!("subvolume/{number}")), [b'x'; 2000])?;
    }
    let options = ["--csum", "crc32c", "--nodesize", "16k", "-b", "256M", "--subvol", "subvolume"];
    mkfs_from(bench.creamery(), &options, &source, &image)?;
    let snapshot = bench.creamery().run(["subvolume", "snapshot"]);
    snapshot.arg(inside(&image, "/subvolume")).arg(inside(&image, "/snapshot")).ok()?;
    let mut victim = Victim::new(image.clone())?;
    let word = |bytes: &[u8], at: usize| bytes[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
    let one = std::cell::Cell::new(true);
    let removed = victim.remove_item(METADATA_ITEM, &|key, data| {
        let is_leaf = word(key, 9) == 0 && data.len() == 33 && word(data, 25) == DROPPED;
        is_leaf && one.replace(false)
    })?;
    let dropped = victim.edit(ROOT_ITEM, &mut |key, data| {
        let is_it = word(key, 0) == DROPPED;
        if is_it {
            data[REFS..REFS + 4].fill(0);
        }
        is_it
    })?;
    ensure!(removed == 1 && dropped > 0, "{removed} leaves removed, {dropped} subvolumes dropped");
    drop(victim);
    expect_refusal_for_unlisted(bench, &image, "/snapshot", FILES)
}
