//! Damage with right checksums to what is known of subvolumes and sharing: subvolumes in a circle, references to nothing, progress
//! of a drop that lies, extents that overlap. Whatever is asked ends soon, without a panic, and what only reads changes
//! nothing. Whatever is changed afterwards, the rest of the image stays what it was.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{Finished, FuseMount, LoopMount, Random, Run, sync_filesystem, until};

use crate::hostile::{CPU_MAX, Victim};
use crate::item_types::{
    DATA_REF, DIR_INDEX, DIR_ITEM, EXTENT_DATA, EXTENT_ITEM, METADATA_ITEM, ROOT_BACKREF, ROOT_ITEM,
    ROOT_REF, SHARED_BLOCK_REF,
};
use crate::subvolumes::orphans;
use crate::support::{MOUNTED, expect_refusal, expect_untouched, inside, mkfs_empty, stats};

pub(crate) fn cases() -> Vec<Case> {
    vec![Case::new("hostile/damaged-subvolumes", &MOUNTED, damaged).long()]
}

/// In a root item.
const ROOT_DIR: usize = 168;
const ROOT_AT: usize = 176;
const REFS: usize = 216;
const DROP_KEY: usize = 220;
const DROP_LEVEL: usize = 237;
const LEVEL: usize = 238;
/// In the head of an extent item's data: its flags; behind them the first inline reference.
const INLINE_REF: usize = 24;
/// Numbers of the subvolumes: `a`, `a/b`, `a/b/c`; the one that waits for being dropped.
const A: u64 = 256;
const B: u64 = 257;
const C: u64 = 258;
const DEAD: u64 = 261;
const NOBODY: u64 = 99_999;

type SubvolumeEdit = fn(&mut [u8], &mut [u8]) -> bool;

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn put(bytes: &mut [u8], at: usize, value: u64) -> bool {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    true
}

/// First and last part of a key.
const OBJECT: usize = 0;
const OFFSET: usize = 9;

fn of(key: &[u8], id: u64) -> bool {
    word(key, OBJECT) == id
}

/// Where a drop is to go on.
fn progress(data: &mut [u8], objectid: u64, offset: u64, level: u8) -> bool {
    put(data, DROP_KEY, objectid);
    data[DROP_KEY + 8] = 1;
    put(data, DROP_KEY + 9, offset);
    data[DROP_LEVEL] = level;
    true
}

fn has_data_ref(data: &[u8]) -> bool {
    data.len() > INLINE_REF + 28 && data[INLINE_REF] == DATA_REF
}

/// A regular extent on disk.
fn on_disk(data: &[u8]) -> bool {
    data.len() == 53 && data[20] == 1 && word(data, 21) != 0
}

/// What is damaged, in items of which type, and how.
const DAMAGES: [(&str, u8, SubvolumeEdit); 34] = [
    ("subvolumes in a circle", ROOT_BACKREF, |key, _| of(key, A) && put(key, OFFSET, C)),
    ("a subvolume in itself", ROOT_BACKREF, |key, _| of(key, B) && put(key, OFFSET, B)),
    ("a subvolume in one that is not there", ROOT_BACKREF, |key, _| of(key, B) && put(key, OFFSET, NOBODY)),
    ("a subvolume in a directory that is not there", ROOT_BACKREF, |_, data| put(data, 0, NOBODY)),
    ("a subvolume in a directory of number 0", ROOT_REF, |_, data| put(data, 0, 0)),
    ("a reference to a subvolume that is not there", ROOT_REF, |key, _| {
        of(key, B) && put(key, OFFSET, NOBODY)
    }),
    ("a reference to itself", ROOT_REF, |key, _| of(key, B) && put(key, OFFSET, B)),
    ("a root without its item", ROOT_ITEM, |key, _| {
        key[8] -= u8::from(of(key, B));
        of(key, B)
    }),
    ("a root without references and note", ROOT_ITEM, |key, data| {
        let is_it = of(key, B);
        data[REFS] = if is_it { 0 } else { data[REFS] };
        is_it
    }),
    ("a root in a block that is not there", ROOT_ITEM, |key, data| of(key, B) && put(data, ROOT_AT, 1 << 40)),
    ("a root in an odd place", ROOT_ITEM, |key, data| {
        of(key, B) && put(data, ROOT_AT, word(data, ROOT_AT) + 1)
    }),
    ("a root of another directory", ROOT_ITEM, |key, data| of(key, B) && put(data, ROOT_DIR, NOBODY)),
    ("a root of a level too high", ROOT_ITEM, |key, data| {
        data[LEVEL] = if of(key, B) { 255 } else { data[LEVEL] };
        of(key, B)
    }),
    ("an entry that leads to where it is", DIR_INDEX, |_, data| data[8] == ROOT_ITEM && put(data, 0, A)),
    ("a name that leads to where it is", DIR_ITEM, |_, data| data[8] == ROOT_ITEM && put(data, 0, A)),
    ("a name that leads to the top level", DIR_ITEM, |_, data| data[8] == ROOT_ITEM && put(data, 0, 5)),
    ("a name that leads to nothing", DIR_ITEM, |_, data| data[8] == ROOT_ITEM && put(data, 0, NOBODY)),
    ("dropping goes on at level 255", ROOT_ITEM, |key, data| of(key, DEAD) && progress(data, 300, 0, 255)),
    ("dropping goes on above the root", ROOT_ITEM, |key, data| of(key, DEAD) && progress(data, 300, 0, 7)),
    ("dropping goes on in the root of one level", ROOT_ITEM, |key, data| {
        of(key, DEAD) && progress(data, 300, 0, 2)
    }),
    ("dropping goes on in a leaf", ROOT_ITEM, |key, data| of(key, DEAD) && progress(data, 300, 0, 0)),
    ("dropping goes on behind the end", ROOT_ITEM, |key, data| {
        of(key, DEAD) && progress(data, u64::MAX, u64::MAX, 1)
    }),
    ("dropping goes on between two keys", ROOT_ITEM, |key, data| of(key, DEAD) && progress(data, 301, 77, 1)),
    ("dropping goes on in what nobody drops", ROOT_ITEM, |key, data| of(key, B) && progress(data, 257, 0, 1)),
    ("data of a tree that is not there", EXTENT_ITEM, |_, data| has_data_ref(data) && put(data, 25, NOBODY)),
    ("data of an inode that is not there", EXTENT_ITEM, |_, data| {
        has_data_ref(data) && put(data, 33, NOBODY)
    }),
    ("data of a place that is not there", EXTENT_ITEM, |_, data| {
        has_data_ref(data) && put(data, 41, 1 << 62)
    }),
    ("data that nobody refers to", EXTENT_ITEM, |_, data| put(data, 0, 0)),
    ("data that too many refer to", EXTENT_ITEM, |_, data| put(data, 0, u64::MAX)),
    ("a block of a tree that is not there", METADATA_ITEM, |_, data| {
        data.len() > 32 && word(data, 25) >= A && put(data, 25, NOBODY)
    }),
    ("a block referred to by itself", METADATA_ITEM, |key, data| {
        let is_of_a_subvolume = data.len() == INLINE_REF + 9 && word(data, 25) >= A;
        data[INLINE_REF] = if is_of_a_subvolume { SHARED_BLOCK_REF } else { data[INLINE_REF] };
        is_of_a_subvolume && put(data, 25, word(key, OBJECT))
    }),
    ("extents that overlap", EXTENT_ITEM, |key, _| put(key, OFFSET, word(key, OFFSET) * 4)),
    ("data in the midst of other data", EXTENT_DATA, |_, data| {
        on_disk(data) && put(data, 21, word(data, 21) + 4096)
    }),
    ("data behind the end of its extent", EXTENT_DATA, |_, data| on_disk(data) && put(data, 37, 1 << 40)),
];

/// Where a drop goes on counts when it does, and `btrfs check` passes over this, too.
const UNTOLD: [&str; 3] = [
    "dropping goes on above the root",
    "dropping goes on in the root of one level",
    "dropping goes on in what nobody drops",
];

/// Subvolumes in each other, snapshots, clones, and a deleted one that waits.
fn make(bench: &Bench, image: &Path) -> Result<Vec<u8>> {
    let options = ["--csum", "crc32c", "--nodesize", "16k"];
    let mounted = bench.scratch.file("mounted.img");
    mkfs_empty(bench.creamery(), &options, "256M", &mounted)?;
    let kernel = LoopMount::mount(&mounted, &bench.scratch.file("kernel"), "noatime")?;
    let at = |path: &str| kernel.dir().join(path);
    let btrfs = |words: &[&str]| Run::new("btrfs").args(["-q", "subvolume"]).args(words);
    for path in ["a", "a/b", "a/b/c"] {
        btrfs(&["create"]).arg(at(path)).ok()?;
        for number in 0..900 {
            let len = 100 + number % 11 * 500;
            std::fs::write(at(path).join(format!("file {number}")), vec![number as u8; len])?;
        }
    }
    Run::new("cp").arg("--reflink=always").args([at("a/file 10"), at("a/b/clone")]).ok()?;
    btrfs(&["snapshot"]).args([at("a"), at("snapshot")]).ok()?;
    btrfs(&["snapshot", "-r"]).args([at("a/b"), at("read-only")]).ok()?;
    btrfs(&["snapshot"]).args([at("a"), at("dead")]).ok()?;
    let content = Random::new(51).bytes(300_000);
    std::fs::write(at("kept"), &content)?;
    for number in 0..900 {
        std::fs::write(at("dead").join(format!("file {number}")), vec![1; 3000])?;
    }
    // In use, so that it waits: the image is what the last commit left.
    let open = std::fs::File::create(at("dead/file"))?;
    btrfs(&["delete"]).arg(at("dead")).ok()?;
    sync_filesystem(kernel.dir())?;
    Run::new("cp").arg("--sparse=always").args([&mounted, image]).ok()?;
    drop(open);
    kernel.unmount()?;
    std::fs::remove_file(mounted)?;
    ensure!(orphans(image)? == 1, "nobody waits for being dropped");
    Ok(content)
}

/// It ends by itself, and not as programs with bugs end. A message is one line, but for what `check` finds.
fn expect_an_end(finished: &Finished) -> Result<()> {
    let said = finished.stderr_text();
    let bad = matches!(finished.code, None | Some(101 | 134..)) || said.contains("panicked");
    ensure!(!bad, "{finished}");
    ensure!(finished.cpu < CPU_MAX, "{:?} of CPU time for {finished}", finished.cpu);
    ensure!(finished.code == Some(0) || !said.trim().is_empty() || !finished.stdout.is_empty(), "{finished}");
    Ok(())
}

fn read(bench: &Bench, image: &Path) -> Result<u32> {
    let at = |path: &str| inside(image, path);
    let run = |words: &[&str]| bench.creamery().run(words);
    let mut runs = vec![
        run(&["check"]).arg(image),
        run(&["check", "--check-data-csum"]).arg(image),
        run(&["subvolume", "show"]).arg(at("/a/b")),
        run(&["subvolume", "show"]).arg(at("/a/b/c")),
        run(&["subvolume", "get-default"]).arg(image),
        run(&["subvolume", "find-new"]).arg(at("/a/b")).arg("0"),
        run(&["filesystem", "du"]).arg(at("/")),
        run(&["filesystem", "du", "-s"]).arg(at("/snapshot")),
        run(&["ls", "-lR"]).arg(at("/a")),
        run(&["inspect-internal", "dump-tree", "-t", "1"]).arg(image),
        run(&["inspect-internal", "inode-resolve", "260"]).arg(at("/a/b")),
    ];
    for options in [&[][..], &["-p"], &["-a"], &["-o"], &["-s"], &["-d"], &["-r"], &["-tpcguqR"]] {
        runs.push(run(&["subvolume", "list"]).args(options).arg(at("/")));
    }
    for id in [5, A, B, C, DEAD, NOBODY] {
        runs.push(run(&["inspect-internal", "subvolid-resolve", &id.to_string()]).arg(image));
        runs.push(run(&["subvolume", "show", "-r", &id.to_string()]).arg(image));
    }
    for sector in (0..40).step_by(7) {
        let place = (13_631_488_u64 + sector * 4096).to_string();
        runs.push(run(&["inspect-internal", "logical-resolve", &place]).arg(image));
    }
    let mut refused = 0;
    for run in runs {
        let finished = run.output()?;
        expect_an_end(&finished)?;
        refused += u32::from(finished.code != Some(0));
    }
    Ok(refused)
}

/// All that changes subvolumes, and each ends with an answer; what is not damaged can be read.
fn write(bench: &Bench, image: &Path, kept: &[u8]) -> Result<()> {
    let at = |path: &str| inside(image, path);
    let run = |words: &[&str]| bench.creamery().run(words);
    let runs = [
        run(&["subvolume", "sync"]).arg(image),
        run(&["subvolume", "create"]).arg(at("/a/new")),
        run(&["subvolume", "snapshot"]).arg(at("/a")).arg(at("/again")),
        run(&["subvolume", "snapshot", "-r"]).arg(at("/a/b")).arg(at("/a/b/again")),
        run(&["cp", "--reflink=auto"]).arg(at("/a/file 10")).arg(at("/snapshot/clone")),
        run(&["dedupe"]).arg(at("/snapshot")),
        run(&["rm"]).arg(at("/a/b/file 7")),
        run(&["subvolume", "set-default"]).arg(at("/a/b")),
        run(&["subvolume", "set-default", "5"]).arg(image),
        run(&["property", "set"]).arg(at("/a/b/c")).args(["ro", "true"]),
        run(&["subvolume", "delete"]).arg(at("/a/b/c")),
        run(&["subvolume", "delete", "-i", &B.to_string()]).arg(image),
        run(&["subvolume", "delete", "-R"]).arg(at("/a")),
        run(&["subvolume", "delete"]).arg(at("/read-only")),
        run(&["subvolume", "sync"]).arg(image),
        run(&["check", "--check-data-csum"]).arg(image),
    ];
    for run in runs {
        expect_an_end(&run.output()?)?;
    }
    expect_kept(bench, image, kept)
}

fn expect_kept(bench: &Bench, image: &Path, kept: &[u8]) -> Result<()> {
    let found = bench.creamery().run(["cat", "--subvolid=5"]).arg(inside(image, "/kept")).output()?;
    ensure!(found.code != Some(0) || found.stdout == kept, "something else is in a file that nobody changed");
    Ok(())
}

/// A server of a mount answers all of it, and is there at the end.
fn live(bench: &Bench, image: &Path) -> Result<()> {
    let dir = bench.scratch.dir("point")?;
    let tried = bench.creamery().run(["mount"]).arg(image).arg(&dir).output()?;
    expect_an_end(&tried)?;
    if tried.code != Some(0) {
        return Ok(());
    }
    let mount = FuseMount::adopt(bench.creamery(), &dir)?;
    let subvolume = |words: &[&str], path: &str| {
        let run = bench.creamery().run(["subvolume"]).args(words);
        run.arg(mount.dir().join(path)).output()
    };
    let find = Run::new("find").args([".", "-maxdepth", "9"]).within(mount.dir()).output()?;
    ensure!(!find.stderr_text().contains("not connected"), "{find}");
    for (words, path) in [
        (&["list"][..], ""),
        (&["show"], "a/b"),
        (&["create"], "a/b/new"),
        (&["delete"], "a/b/c"),
        (&["delete", "-R"], "a"),
        (&["delete"], "read-only"),
        (&["list", "-d"], ""),
    ] {
        let finished = subvolume(words, path)?;
        expect_an_end(&finished)?;
        ensure!(!finished.stderr_text().contains("not connected"), "the server is gone: {finished}");
    }
    let cleaner = || -> Result<bool> {
        let told = stats(bench, mount.dir())?;
        let works = told["filesystem"]["background"].as_array().context("a list")?;
        let of_the_cleaner = works.iter().find(|work| work["name"] == "cleaner").context("a cleaner")?;
        Ok(of_the_cleaner["steps"] != 0 || of_the_cleaner["failures"] != 0)
    };
    until("a step of the cleaner", cleaner)?;
    std::fs::read_dir(mount.dir()).context("the server is gone")?;
    let ended = bench.creamery().run(["umount"]).arg(mount.dir()).again_while_busy().output()?;
    expect_an_end(&ended)
}

type DamagedCase = fn(&Bench, &Path, &[u8]) -> Result<()>;

fn damaged(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("victim.img");
    let kept = make(bench, &image)?;
    let refused = read(bench, &image)?;
    ensure!(refused == READS_THAT_ARE_REFUSED, "{refused} reads of the undamaged image are refused");
    let mut victim = Victim::new(image.clone())?;
    let copy = bench.scratch.file("copy.img");
    let mut problems = Vec::new();
    for (number, (name, kind, change)) in DAMAGES.into_iter().enumerate() {
        let mut change = change;
        // On a mount the cleaner is waited for each time.
        let on_a_mount = number % 4 == 0 || name.starts_with("dropping");
        ensure!(victim.edit(kind, &mut change)? > 0, "{name}: there is nothing to damage");
        let one = || -> Result<()> {
            let mut refused = 0;
            let reading = || -> Result<()> {
                refused = read(bench, &image)?;
                Ok(())
            };
            expect_untouched(&image, reading).context("reading")?;
            ensure!(
                refused > READS_THAT_ARE_REFUSED || UNTOLD.contains(&name),
                "nobody complains, check neither"
            );
            if name.starts_with("dropping goes on") && !name.ends_with("nobody drops") {
                Run::new("cp").arg("--sparse=always").args([&image, &copy]).ok()?;
                let sync = bench.creamery().run(["subvolume", "sync"]).arg(&copy);
                expect_refusal(sync, &["copy.img", "drop"]).context("going on")?;
            }
            let ways: &[DamagedCase] =
                if on_a_mount { &[write_in_the_image, live_with] } else { &[write_in_the_image] };
            for what in ways {
                Run::new("cp").arg("--sparse=always").args([&image, &copy]).ok()?;
                what(bench, &copy, &kept)?;
            }
            Ok(())
        };
        if let Err(error) = one() {
            problems.push(format!("{name}: {error:#}"));
        }
        victim.restore()?;
    }
    ensure!(problems.is_empty(), "{}", problems.join("\n"));
    Ok(())
}

/// `subvolid-resolve` of the deleted one and of a number that nobody has, and `show` of that.
const READS_THAT_ARE_REFUSED: u32 = 3;

fn write_in_the_image(bench: &Bench, image: &Path, kept: &[u8]) -> Result<()> {
    write(bench, image, kept).context("changing the image")
}

fn live_with(bench: &Bench, image: &Path, kept: &[u8]) -> Result<()> {
    live(bench, image).context("on a mount")?;
    expect_kept(bench, image, kept)
}
