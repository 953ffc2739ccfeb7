//! `creamery diff`, compared with changes by the kernel, and with rsync(1).

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{Finished, FuseMount, Judge, LoopMount, Random, Run};
use serde_json::Value;

use crate::support::{JUDGED, MOUNTED, flip_byte, inside, mkfs_empty, mkfs_from};

pub(crate) fn cases() -> Vec<Case> {
    let tools = ["setfattr", "setfacl", "chattr", "fallocate"].map(Judge::Tool);
    let with_tools = [&JUDGED[..], &tools].concat();
    let with_rsync = [&JUDGED[..], &[Judge::Tool("rsync"), Judge::Tool("setfattr")]].concat();
    vec![
        Case::new("diff/what-the-kernel-changed", &with_tools, kernel_changes),
        Case::new("diff/random-changes-beside-rsync", &with_rsync, beside_rsync),
        Case::new("diff/shared-extents-are-not-read", &[Judge::Program], shared_extents),
        Case::new("diff/damaged-trees", &[Judge::Program, Judge::BtrfsProgs], damaged_trees),
        Case::new("diff/hostile-names", &[Judge::Program, Judge::Tool("script")], hostile_names),
        Case::new("diff/in-use", &MOUNTED, in_use),
    ]
}

const SAME: i32 = 0;
const DIFFERENT: i32 = 1;
const TROUBLE: i32 = 2;

/// Runs `creamery diff OPTIONS OLD NEW`, which must end with `status`.
fn diff(bench: &Bench, options: &[&str], [old, new]: [(&Path, &str); 2], status: i32) -> Result<Finished> {
    let run = bench.creamery().run(["diff"]).args(options);
    let finished = run.arg(inside(old.0, old.1)).arg(inside(new.0, new.1)).output()?;
    ensure!(finished.code == Some(status), "wants status {status}: {finished}");
    ensure!(status == TROUBLE || finished.stderr.is_empty(), "something was said: {finished}");
    Ok(finished)
}

/// The script of the old state, with times that do not depend on the clock.
const BEFORE: &str = "
    mkdir d gone gone/deep
    for name in content length mode owner xattr acl time flags type same allocated; do echo $name > d/$name; done
    head -c 3000000 /dev/zero | tr '\\0' x > d/large
    ln -s here d/link; ln d/same d/hard; mknod d/null c 1 3; mknod d/pipe p; echo x > gone/deep/file
    truncate -s 1M d/hole; truncate -s 1M d/set-aside
    btrfs -q subvolume create nested; echo x > nested/file
    find . -exec touch -h -d @1000000 {} +";
const CHANGES: &str = "
    echo CONTENT > d/content; echo more >> d/length; chmod 600 d/mode; chown 7:8 d/owner
    setfattr -n user.a -v b d/xattr; setfacl -m u:7:r d/acl; chattr +d d/flags
    rm d/type; mkdir d/type; echo x > d/type/below; rm d/pipe; mkdir d/pipe
    ln -sfn there d/link; rm d/null; mknod d/null c 1 5; mv d/same d/renamed
    dd if=/dev/zero of=d/hole bs=1M count=1 conv=notrunc status=none; fallocate -l 1M d/set-aside
    cp --reflink=never d/large d/new; mv d/new d/large; fallocate -n -l 1M d/allocated
    rm -r gone; mkdir new; echo x > new/file; btrfs -q subvolume create new-sub; echo x > new-sub/file
    find . -exec touch -h -d @1000000 {} +; touch -d @2000000 d/time";
const DIFFERENCES: [&str; 22] = [
    "M xattr\td/acl",
    "M content\td/content",
    "M flags\td/flags",
    "M content\td/length",
    "M content\td/link",
    "M mode\td/mode",
    "M content\td/null",
    "M owner\td/owner",
    "M type\td/pipe",
    "A\td/renamed",
    "D\td/same",
    "M time\td/time",
    "M type\td/type",
    "A\td/type/below",
    "M xattr\td/xattr",
    "D\tgone",
    "D\tgone/deep",
    "D\tgone/deep/file",
    "A\tnested/",
    "A\tnew",
    "A\tnew-sub/",
    "A\tnew/file",
];

/// Each kind of change, made by the kernel after a snapshot: the lines, the reverse, the counts, and the difference to a copy of the image.
fn kernel_changes(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "512M", &image)?;
    let kernel = LoopMount::mount(&image, &bench.scratch.file("kernel"), "noatime")?;
    let work = kernel.dir().join("work");
    Run::new("btrfs").args(["-q", "subvolume", "create"]).arg(&work).ok()?;
    Run::new("sh").args(["-ec", BEFORE]).within(&work).ok()?;
    let snapshot = Run::new("btrfs").args(["-q", "subvolume", "snapshot", "-r"]).arg(&work);
    snapshot.arg(kernel.dir().join("before")).ok()?;
    Run::new("sh").args(["-ec", CHANGES]).within(&work).ok()?;
    kernel.unmount()?;

    let copy = bench.scratch.file("copy.img");
    Run::new("cp").args(["--sparse=always"]).arg(&image).arg(&copy).ok()?;
    let said = DIFFERENCES.map(|line| format!("{line}\n")).concat();
    for other in [&image, &copy] {
        let told = diff(bench, &[], [(&image, "/before"), (other, "/work")], DIFFERENT)?.stdout_text();
        ensure!(told == said, "{told}\nwants\n{said}");
        let back = diff(bench, &[], [(other, "/work"), (&image, "/before")], DIFFERENT)?.stdout_text();
        let turned = said.lines().map(|line| match line.split_at(1) {
            ("A", rest) => format!("D{rest}\n"),
            ("D", rest) => format!("A{rest}\n"),
            _ => format!("{line}\n"),
        });
        // Files below a directory that became a file, or the reverse, have no other place.
        ensure!(back == turned.collect::<String>(), "backwards {back}");
        for place in ["/", "/work", "/before", "/work/d/type"] {
            let told = diff(bench, &[], [(&image, place), (other, place)], SAME)?;
            ensure!(told.stdout.is_empty(), "{told}");
        }
    }
    let sides = || [(&*image, "/before"), (&*image, "/work")];
    let stat = diff(bench, &["--stat", "--json"], sides(), DIFFERENT)?.stdout_text();
    let stat: Value = serde_json::from_str(&stat)?;
    let number = |name: &str| stat[name].as_u64();
    let counts = ["added", "removed", "modified"].map(number);
    ensure!(counts == [Some(6), Some(4), Some(12)], "{stat}");
    let bytes = ["added_bytes", "removed_bytes", "changed_bytes"].map(number);
    // "same", "x", "x"; "same", "x"; "content", "length" and "more", "type".
    ensure!(bytes == [Some(9), Some(7), Some(25)], "{stat}");
    let told = diff(bench, &["--stat"], sides(), DIFFERENT)?.stdout_text();
    ensure!(told.starts_with("added: 6, with 9 bytes of files\nremoved: 4, "), "{told}");
    Ok(())
}

/// The output of `creamery diff`: letters and kinds by path.
type Found = BTreeMap<String, BTreeSet<String>>;

fn set<const N: usize>(words: [&str; N]) -> BTreeSet<String> {
    words.map(str::to_owned).into()
}

fn found_by_us(told: &str) -> Result<Found> {
    let mut paths = Vec::new();
    let mut found = Found::new();
    for line in told.lines() {
        let (what, path) = line.split_once('\t').context("a tab")?;
        paths.push(path.to_owned());
        let kinds = what.strip_prefix("M ").unwrap_or(what).split(',').map(str::to_owned).collect();
        found.insert(path.to_owned(), kinds);
    }
    // The operands themselves come first.
    let paths = paths.strip_prefix(&[".".to_owned()][..]).unwrap_or(&paths);
    ensure!(paths.is_sorted(), "the paths are not sorted: {told}");
    Ok(found)
}

/// The changes by which rsync would turn `old` into `new`.
fn found_by_rsync(old: &Path, new: &Path) -> Result<Found> {
    let run = Run::new("rsync").args([
        "-naciXA",
        "--delete",
        "--numeric-ids",
        "--modify-window=-1",
        "--out-format=%i %n",
    ]);
    let told = run.arg(new.join("")).arg(old.join("")).ok()?.stdout_text();
    let mut found = Found::new();
    for line in told.lines() {
        let (what, path) = line.split_at_checked(12).context(line.to_owned())?;
        let path = if path == "./" { "." } else { path.trim_end_matches('/') };
        let kinds = match what.trim_end() {
            "*deleting" => set(["D"]),
            what if what.ends_with("+++++++++") => set(["A"]),
            what => {
                let marks = [
                    ('c', "content"),
                    ('t', "time"),
                    ('T', "time"),
                    ('p', "mode"),
                    ('o', "owner"),
                    ('g', "owner"),
                    ('x', "xattr"),
                ];
                let attributes = what.get(2..).context("marks")?;
                let kinds = marks.iter().filter(|(mark, _)| attributes.contains(*mark));
                kinds.map(|(_, kind)| (*kind).to_owned()).collect()
            }
        };
        if !kinds.is_empty() {
            found.insert(path.to_owned(), kinds);
        }
    }
    Ok(found)
}

/// Names that sort around a slash, and names in use.
fn name(random: &mut Random) -> String {
    const NAMES: [&str; 12] = ["a", "a-", "a.b", "a0", "A", "a b", "b", "b.", "c", "-c", "c,d", "e"];
    NAMES[random.below(NAMES.len() as u64) as usize].to_owned()
}

fn path(random: &mut Random) -> String {
    let depth = 1 + random.below(3);
    (0..depth).map(|_| name(random)).collect::<Vec<_>>().join("/")
}

/// Makes a change somewhere, or none if it is not possible.
fn change(dir: &Path, random: &mut Random) -> Result<()> {
    let path = dir.join(path(random));
    let parent = path.parent().context("it has one")?;
    let is_file = path.symlink_metadata().is_ok_and(|meta| meta.is_file());
    let is_there = path.symlink_metadata().is_ok();
    let sh = |script: &str| {
        let run = Run::new("sh").args(["-ec", script, "sh"]).arg(&path);
        run.within(dir).ok().with_context(|| format!("{script}: {}", path.display()))
    };
    let size = random.below(20_000);
    match random.below(14) {
        0..4 if !is_there && parent.is_dir() => std::fs::write(&path, random.bytes(size as usize))?,
        4 | 5 if !is_there && parent.is_dir() => std::fs::create_dir(&path)?,
        6 if !is_there && parent.is_dir() => std::os::unix::fs::symlink(name(random), &path)?,
        6 if path.is_symlink() => drop(sh(&format!("ln -sfn to-{size} \"$1\""))?),
        0 if is_file => std::fs::write(&path, random.bytes(size as usize))?,
        1 if is_file => drop(sh(&format!("truncate -s {size} \"$1\""))?),
        2 if is_file => drop(sh("cp \"$1\" x; cat x > \"$1\"; rm x")?),
        3 if is_file => drop(sh("printf Y | dd of=\"$1\" bs=1 seek=5000 conv=notrunc status=none")?),
        7 if is_file => drop(sh(&format!("chmod 0{:o} \"$1\"", 0o600 | random.below(0o100)))?),
        8 if is_there => drop(sh(&format!("chown -h {}:{} \"$1\"", random.below(3), random.below(3)))?),
        9 if is_file => drop(sh(&format!("setfattr -n user.a -v {} \"$1\"", random.below(3)))?),
        10 if is_there => drop(sh(&format!("touch -h -d @{size} \"$1\""))?),
        11 if is_file && random.below(2) == 0 => std::fs::remove_file(&path)?,
        12 if path.is_dir() && random.below(4) == 0 => std::fs::remove_dir_all(&path)?,
        _ => {}
    }
    Ok(())
}

fn beside_rsync(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "512M", &image)?;
    let mut random = Random::new(20_261_128);
    let kernel = LoopMount::mount(&image, &bench.scratch.file("kernel"), "noatime")?;
    let (work, before) = (kernel.dir().join("work"), kernel.dir().join("before"));
    Run::new("btrfs").args(["-q", "subvolume", "create"]).arg(&work).ok()?;
    for _ in 0..1_500 {
        change(&work, &mut random)?;
    }
    Run::new("btrfs").args(["-q", "subvolume", "snapshot", "-r"]).args([&work, &before]).ok()?;
    for _ in 0..700 {
        change(&work, &mut random)?;
    }
    Run::new("sync").arg("-f").arg(&work).ok()?;
    let mut wanted = [found_by_rsync(&before, &work)?, found_by_rsync(&work, &before)?];
    for (wanted, [old, new]) in wanted.iter_mut().zip([[&before, &work], [&work, &before]]) {
        for (path, kinds) in wanted {
            let types = [old, new].map(|dir| dir.join(path).symlink_metadata().map(|meta| meta.file_type()));
            // For rsync such a file is a new one.
            if matches!(types, [Ok(one), Ok(other)] if one != other) {
                *kinds = set(["type"]);
            }
        }
    }
    kernel.unmount()?;
    for ([old, new], wanted) in [["/before", "/work"], ["/work", "/before"]].into_iter().zip(wanted) {
        let told = diff(bench, &[], [(&image, old), (&image, new)], DIFFERENT)?.stdout_text();
        let found = found_by_us(&told)?;
        ensure!(wanted.len() > 50, "{} differences are few", wanted.len());
        for path in wanted.keys().chain(found.keys()) {
            let (ours, theirs) = (found.get(path), wanted.get(path));
            ensure!(ours == theirs, "{path}: {ours:?}, and rsync {theirs:?}");
        }
    }
    Ok(())
}

/// The offset of `bytes` in the image.
fn find(image: &Path, bytes: &[u8]) -> Result<u64> {
    let content = std::fs::read(image)?;
    let at = content.chunks(4096).position(|block| block.starts_with(bytes)).context("they are there")?;
    Ok(at as u64 * 4096)
}

/// With damaged data a snapshot still equals its origin, and a comparison that must read the data names the side of the damage.
fn shared_extents(bench: &Bench) -> Result<()> {
    let source = bench.scratch.dir("source")?;
    let data = Random::new(9).bytes(4 << 20);
    std::fs::write(source.join("large"), &data)?;
    std::fs::write(source.join("small"), "text")?;
    let (image, sound) = (bench.scratch.file("disk.img"), bench.scratch.file("sound.img"));
    for image in [&image, &sound] {
        mkfs_empty(bench.creamery(), &[], "256M", image)?;
        bench.creamery().run(["subvolume", "create"]).arg(inside(image, "/work")).ok()?;
        bench.creamery().run(["cp", "-a"]).arg(source.join(".")).arg(inside(image, "/work")).ok()?;
    }
    let snapshot = bench.creamery().run(["subvolume", "snapshot", "-r"]);
    snapshot.arg(inside(&image, "/work")).arg(inside(&image, "/before")).ok()?;
    flip_byte(&image, find(&image, &data[1 << 20..][..4096])?)?;
    let read = bench.creamery().run(["cat"]).arg(inside(&image, "/work/large")).output()?;
    ensure!(read.code == Some(1), "the data is damaged: {read}");

    diff(bench, &[], [(&image, "/before"), (&image, "/work")], SAME)?;
    bench.creamery().run(["chmod", "600"]).arg(inside(&image, "/work/small")).ok()?;
    bench.creamery().run(["chmod", "600"]).arg(inside(&image, "/work/large")).ok()?;
    let lines = "M mode\tlarge\nM mode\tsmall\n";
    let told = diff(bench, &[], [(&image, "/before"), (&image, "/work")], DIFFERENT)?;
    ensure!(told.stdout_text() == lines, "{told}");
    // An unreadable file is compared as far as possible, and the comparison goes on behind it.
    for sides in [[(&*image, "/work"), (&*sound, "/work")], [(&*sound, "/work"), (&*image, "/work")]] {
        let told = diff(bench, &[], sides, TROUBLE)?;
        ensure!(told.stdout_text() == lines, "{told}");
        let said = told.stderr_text();
        let place = format!("creamery: diff: {}:/work/large: ", image.display());
        ensure!(said.starts_with(&place) && said.lines().count() == 1, "{told}");
        let told = diff(bench, &["--json"], sides, TROUBLE)?;
        let json: Value = serde_json::from_slice(&told.stdout)?;
        ensure!(json.as_array().is_some_and(|all| all.len() == 2), "{told}");
        let told = diff(bench, &["--stat"], sides, TROUBLE)?;
        ensure!(told.stdout_text().contains("modified: 2, with 0 bytes"), "{told}");
    }
    Ok(())
}

/// If one leaf of a tree is lost, no name that may be in it counts as added or removed, differences elsewhere are listed, and each error
/// names its side.
fn damaged_trees(bench: &Bench) -> Result<()> {
    let source = bench.scratch.dir("source")?;
    for (dir, files) in [("many", 1_000), ("other", 1)] {
        std::fs::create_dir(source.join(dir))?;
        for number in 0..files {
            std::fs::write(source.join(dir).join(format!("file-{number}")), "text")?;
        }
    }
    let (sound, damaged) = (bench.scratch.file("sound.img"), bench.scratch.file("damaged.img"));
    mkfs_empty(bench.creamery(), &["-m", "single"], "256M", &sound)?;
    bench.creamery().run(["cp", "-a"]).arg(source.join(".")).arg(inside(&sound, "/")).ok()?;
    Run::new("cp").arg("--sparse=always").args([&sound, &damaged]).ok()?;
    bench.creamery().run(["chmod", "600"]).arg(inside(&sound, "/other/file-0")).ok()?;
    let tree = Run::new("btrfs").args(["inspect-internal", "dump-tree", "-t", "5"]).arg(&damaged).ok()?;
    let tree = tree.stdout_text();
    let leaves: BTreeSet<u64> =
        tree.lines().filter_map(|line| line.strip_prefix("leaf ")?.split(' ').next()?.parse().ok()).collect();
    ensure!(leaves.len() > 10, "{leaves:?}");
    let (difference, mut listed) = ("M mode\tother/file-0\n", 0);
    for leaf in leaves.iter().step_by(2) {
        flip_byte(&damaged, leaf + 200)?;
        for sides in [[&damaged, &sound], [&sound, &damaged]] {
            let told = bench.creamery().run(["diff"]).args(sides).output()?;
            let (said, place) = (told.stderr_text(), format!("creamery: diff: {}", damaged.display()));
            let is_named = !said.is_empty() && said.lines().all(|line| line.starts_with(&place));
            // Listings do not read names by hash, which have their own leaves.
            let is_read = told.code != Some(DIFFERENT) || !said.is_empty() || !has_hashes_alone(&tree, *leaf);
            ensure!(!is_read || told.code == Some(TROUBLE) && is_named, "leaf {leaf}: {told}");
            ensure!(["", difference].contains(&&*told.stdout_text()), "leaf {leaf}: {told}");
            listed += usize::from(!told.stdout.is_empty());
        }
        flip_byte(&damaged, leaf + 200)?;
    }
    ensure!(listed + 6 > leaves.len(), "{listed} of {} calls listed what differs", leaves.len());
    Ok(())
}

/// Whether a leaf has only names of files by hash.
fn has_hashes_alone(tree: &str, leaf: u64) -> bool {
    let items = tree.lines().skip_while(|line| !line.starts_with(&format!("leaf {leaf} items ")));
    let items = items.skip(1).take_while(|line| !line.starts_with("leaf ") || line.contains(" flags "));
    let mut keys = items.filter(|line| line.trim_start().starts_with("item ")).peekable();
    keys.peek().is_some() && keys.all(|line| line.contains(" DIR_ITEM "))
}

/// Names with control characters, for lines and for programs that read them.
fn hostile_names(bench: &Bench) -> Result<()> {
    let names: [&[u8]; 8] =
        [b" ", b"--help", b"A\tx", b"a\nD\tall", b"a\x1b[2J", b"a\\n", b"x\xff\xfe", "x\u{202e}".as_bytes()];
    let (some, none) = (bench.scratch.dir("some")?, bench.scratch.dir("none")?);
    for name in names {
        std::fs::write(some.join(OsStr::from_bytes(name)), "x")?;
    }
    let time = Run::new("touch").args(["-d", "@1000000"]);
    time.args([&some, &none]).ok()?;
    let (old, new) = (bench.scratch.file("old.img"), bench.scratch.file("new.img"));
    mkfs_from(bench.creamery(), &[], &none, &old)?;
    mkfs_from(bench.creamery(), &[], &some, &new)?;
    let sides = || [(&*old, "/"), (&*new, "/")];
    let mut sorted = names.to_vec();
    sorted.sort_unstable();
    let line = |end: u8| {
        let lines = sorted.iter().map(|name| [b"A\t", *name, &[end]].concat());
        lines.collect::<Vec<_>>().concat()
    };
    for (options, end) in [(&["-0"][..], 0), (&["--null"], 0), (&[], b'\n')] {
        let told = diff(bench, options, sides(), DIFFERENT)?;
        ensure!(told.stdout == line(end), "{told}");
    }
    let told = diff(bench, &["--json"], sides(), DIFFERENT)?;
    let json: Vec<Value> = serde_json::from_slice(&told.stdout)?;
    for (value, name) in json.iter().zip(&sorted) {
        let text = value["path"].as_str().context("a path")?;
        match value["path_bytes"].as_str() {
            Some(bytes) => ensure!(bytes == "78fffe" && *name == b"x\xff\xfe", "{value}"),
            None => ensure!(text.as_bytes() == *name, "{value}"),
        }
    }
    // On a terminal a name has no effect: each is one line.
    let command =
        format!("{} diff {} {}; true", bench.creamery().path().display(), old.display(), new.display());
    let shown = Run::new("script").args(["-qec", &command, "/dev/null"]).output()?.stdout_text();
    ensure!(shown.lines().count() == names.len() && !shown.contains("\x1b["), "{shown}");
    Ok(())
}

/// An image that is being written is refused, as by each reading command; a log to replay is passed over, as by these, too.
fn in_use(bench: &Bench) -> Result<()> {
    let (image, copy) = (bench.scratch.file("disk.img"), bench.scratch.file("copy.img"));
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    Run::new("cp").arg("--sparse=always").arg(&image).arg(&copy).ok()?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("mount"), "")?;
    let listed = bench.creamery().run(["ls"]).arg(&image).output()?.stderr_text();
    for sides in [[&image, &copy], [&copy, &image], [&image, &image]] {
        let told = bench.creamery().run(["diff"]).args(sides).output()?;
        // The advice differs between commands.
        let why = |text: &str| text.split(": in use").next().unwrap_or_default().to_owned();
        let wanted = why(&listed.replacen("ls:", "diff:", 1));
        let said = told.stderr_text();
        if told.code != Some(TROUBLE) || why(&said) != wanted || said.lines().count() != 1 {
            bail!("{told}\nwants {wanted}");
        }
    }
    let file = mount.dir().join("file");
    std::fs::write(&file, "in the log")?;
    std::fs::File::open(&file)?.sync_all()?;
    let logged = bench.scratch.file("logged.img");
    Run::new("cp").arg("--sparse=always").arg(&image).arg(&logged).ok()?;
    mount.unmount()?;
    // A reading command passes over a log, and says so.
    let listed = bench.creamery().run(["ls"]).arg(&logged).ok()?;
    ensure!(listed.stdout.is_empty() && listed.stderr_text().contains("a log to replay"), "{listed}");
    let told = bench.creamery().run(["diff"]).args([&copy, &logged]).ok()?;
    ensure!(told.stdout.is_empty() && told.stderr == listed.stderr, "{told}");
    let told = diff(bench, &[], [(&copy, "/"), (&image, "/")], DIFFERENT)?.stdout_text();
    ensure!(told == "M time\t.\nA\tfile\n", "{told}");
    Ok(())
}
