//! `creamery restore` beside `btrfs restore`: both restore equal files, with equal content, from whole and damaged images.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::walk::{Compare, Walk, differences, expect_same};
use creamery_testkit::{Judge, LoopMount, Random, Run};

use crate::support::{MOUNTED, expect_refusal, expect_untouched, flip_byte, mkfs_empty};
use crate::tree_log::superblock_word;

pub(crate) fn cases() -> Vec<Case> {
    let with_xattrs = [&MOUNTED[..], &[Judge::Tool("setfattr")]].concat();
    let with_find_root = [&with_xattrs[..], &[Judge::Tool("btrfs-find-root")]].concat();
    vec![
        Case::new("restore/as-btrfs-restore", &with_xattrs, as_btrfs_restore),
        Case::new("restore/what-is-there", &with_xattrs, what_is_there),
        Case::new("restore/earlier-root", &with_find_root, earlier_root),
        Case::new("restore/superblock-copy", &with_xattrs, superblock_copy),
        Case::new("restore/ignore-errors", &with_xattrs, ignore_errors),
        Case::new("restore/last-leaf-is-lost", &with_xattrs, last_leaf_is_lost),
        Case::new("restore/stubs-of-subvolumes", &with_xattrs, stubs),
    ]
}

const FIRST: u64 = 0x10000;

/// If the last leaf of a subvolume is lost, files in the other leaves are restored, as with btrfs-progs.
fn last_leaf_is_lost(bench: &Bench) -> Result<()> {
    const FILES: usize = 300;
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &["-m", "single"], "256M", &image)?;
    let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "nodiscard,commit=300")?;
    for number in 0..FILES {
        fs::write(mount.dir().join(number.to_string()), format!("content {number}"))?;
    }
    mount.unmount()?;
    let tree = Run::new("btrfs").args(["inspect-internal", "dump-tree", "-t", "5"]).arg(&image).ok()?;
    let tree = tree.stdout_text();
    let mut leaves =
        tree.lines().filter_map(|line| line.strip_prefix("leaf ")?.split(' ').next()?.parse().ok());
    // Metadata has one copy, at its logical addresses.
    flip_byte(&image, leaves.next_back().context("a leaf")?)?;
    let (theirs, ours) = (bench.scratch.dir("theirs")?, bench.scratch.dir("ours")?);
    Run::new("btrfs").args(["restore", "-i"]).arg(&image).arg(&theirs).output()?;
    let said = bench.creamery().run(["restore", "-i"]).arg(&image).arg(&ours).output()?;
    ensure!(said.code == Some(1), "{said}");
    let whole = |dir: &Path| -> usize {
        let is_whole = |number: &usize| {
            fs::read(dir.join(number.to_string()))
                .is_ok_and(|found| found == format!("content {number}").as_bytes())
        };
        (0..FILES).filter(is_whole).count()
    };
    ensure!(whole(&ours) >= whole(&theirs) && whole(&ours) > FILES / 2, "{} files", whole(&ours));
    let listed = bench.creamery().run(["ls", "-1"]).arg(&image).ok()?.stdout_text();
    ensure!(listed.lines().count() == FILES, "{listed}");
    Ok(())
}

/// All empty directories that stand for subvolumes in a snapshot have the same inode number, which is no damage.
fn stubs(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "128M", &image)?;
    let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "")?;
    let subvolume = |words: &[&str]| Run::new("btrfs").arg("subvolume").args(words).within(mount.dir()).ok();
    subvolume(&["create", "one", "other", "third"])?;
    subvolume(&["snapshot", "-r", ".", "all"])?;
    mount.unmount()?;
    let out = bench.scratch.dir("out")?;
    bench.creamery().run(["restore", "-si"]).arg(&image).arg(&out).ok()?;
    let tar = bench.creamery().run(["tar", "-c", "--ignore-errors", "-f", "/dev/null"]);
    tar.arg(crate::support::inside(&image, "/")).ok().map(drop)
}

/// An image made by Linux: files of all kinds, a subvolume, and snapshots of it; with one copy of metadata. Returns the content of a file
/// of many sectors.
fn source(bench: &Bench) -> Result<(PathBuf, Vec<u8>)> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &["-m", "single"], "256M", &image)?;
    // Without discards, so that older blocks can be found.
    let mount =
        LoopMount::mount(&image, &bench.scratch.file("kernel"), "nodiscard,commit=300,compress=zstd")?;
    let at = |name: &str| mount.dir().join(name);
    let data = Random::new(5).bytes(64 * 4096);
    fs::create_dir_all(at("folder/deep"))?;
    fs::create_dir(at("empty"))?;
    fs::write(at("folder/random"), &data)?;
    fs::write(at("folder/deep/text"), "again and again\n".repeat(20_000))?;
    fs::write(at("folder/small"), "inline")?;
    let sparse = fs::File::create(at("folder/sparse"))?;
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"far out", 1 << 20)?;
    sparse.set_len(3 << 20)?;
    drop(sparse);
    symlink("small", at("folder/link"))?;
    Run::new("mkfifo").arg(at("fifo")).ok()?;
    for (name, mode, owner) in [("folder/small", 0o4750, 1000), ("folder/deep", 0o700, 1001)] {
        std::os::unix::fs::chown(at(name), Some(owner), Some(owner + 7))?;
        fs::set_permissions(at(name), fs::Permissions::from_mode(mode))?;
        Run::new("setfattr").args(["-n", "user.of", "-v", name]).arg(at(name)).ok()?;
        Run::new("touch").args(["-d", "2001-02-03 04:05:06.789"]).arg(at(name)).ok()?;
    }
    let subvolume = |words: &[&str]| Run::new("btrfs").arg("subvolume").args(words).within(mount.dir()).ok();
    subvolume(&["create", "below"])?;
    fs::write(at("below/file"), "in a subvolume")?;
    subvolume(&["snapshot", "below", "writable"])?;
    subvolume(&["snapshot", "-r", "below", "folder/before"])?;
    Run::new("sync").arg("-f").arg(mount.dir()).ok()?;
    mount.unmount()?;
    Ok((image, data))
}

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

/// The results of both programs with equal words, each in its own directory.
fn both(bench: &Bench, image: &Path, text: &str) -> Result<(PathBuf, PathBuf)> {
    let (theirs, ours) = (bench.scratch.file("theirs"), bench.scratch.file("ours"));
    for dir in [&theirs, &ours] {
        if dir.exists() {
            fs::remove_dir_all(dir)?;
        }
        fs::create_dir(dir)?;
    }
    Run::new("btrfs").arg("restore").args(words(text)).args([image, &theirs]).ok()?;
    bench.creamery().run(["restore"]).args(words(text)).args([image, &ours]).ok()?;
    Ok((theirs, ours))
}

/// Checks that both results are equal.
fn same(bench: &Bench, image: &Path, text: &str) -> Result<()> {
    let (theirs, ours) = both(bench, image, text)?;
    let (want, have) = (Walk::take(&theirs)?, Walk::take(&ours)?);
    ensure!(want.entries().count() > 1, "{text}: btrfs restore restores nothing");
    let keeps_metadata = |word: &&str| match word.strip_prefix('-') {
        Some(long) if long.starts_with('-') => long == "-metadata",
        short => short.is_some_and(|letters| letters.contains('m')),
    };
    if words(text).iter().any(keeps_metadata) {
        return expect_same(text, &want, &have, &Compare::default());
    }
    // Without that option the permission bits are those of the source here, and those of a new file there.
    let compare = Compare { mtime: false, owners: false, ..Compare::default() };
    let mut told = differences(&want, &have, &compare);
    told.retain(|line| !line.contains(": mode is "));
    ensure!(told.is_empty(), "{text}: {told:#?}");
    Ok(())
}

fn as_btrfs_restore(bench: &Bench) -> Result<()> {
    let (image, _) = source(bench)?;
    expect_untouched(&image, || {
        [
            "",
            "-S",
            "-x",
            "-m",
            "-mxS",
            "-smxS",
            "--snapshots --metadata --xattr --symlinks --ignore-errors",
            "-r 256",
            "-r 257 -m",
            "-u 1",
            "--path-regex ^/(|folder(|/(s.*|deep(|/.*))))$",
            "--path-regex ^/(|FOLDER(|/(S.*|dEEp(|/.*))))$ -c",
        ]
        .iter()
        .try_for_each(|text| same(bench, &image, text))
    })?;
    // Here a hard link remains one.
    let (link, out) = (bench.scratch.file("btrfs"), bench.scratch.dir("by-link")?);
    let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "")?;
    fs::hard_link(mount.dir().join("folder/small"), mount.dir().join("another"))?;
    mount.unmount()?;
    symlink(bench.creamery().path(), &link)?;
    Run::new(&link).args(["-v", "rest", "-D"]).args([&image, &out]).ok()?;
    Run::new(&link).arg("restore").args([&image, &out]).ok()?;
    ensure!(fs::read(out.join("another"))? == b"inline", "not what the file has");
    ensure!(fs::metadata(out.join("folder/small"))?.nlink() == 2, "no hard link any more");
    // A file restored without its owner gives no extra permissions.
    let mode = fs::metadata(out.join("folder/small"))?.mode() & 0o7777;
    ensure!(mode == 0o750, "the mode is {mode:o}");
    Ok(())
}

/// Existing files stay and are reported; a dry run makes nothing and lists the files it would make.
fn what_is_there(bench: &Bench) -> Result<()> {
    let (image, _) = source(bench)?;
    let (theirs, ours) = both(bench, &image, "")?;
    for dir in [&theirs, &ours] {
        fs::write(dir.join("folder/small"), "mine")?;
        fs::remove_file(dir.join("folder/sparse"))?;
    }
    let say = |run: Run, dir: &Path| -> Result<String> {
        Ok(run.args([image.as_path(), dir]).ok()?.stdout_text().replace(&dir.display().to_string(), "DIR"))
    };
    let restore = |words: &[&str]| bench.creamery().run(["restore"]).args(words);
    let wanted = say(Run::new("btrfs").arg("restore"), &theirs)?;
    let found = say(restore(&[]), &ours)?;
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    ensure!(sorted(&found) == sorted(&wanted), "{found}\nbtrfs restore:\n{wanted}");
    ensure!(found.contains("Skipping existing file DIR/folder/"), "{found}");
    for dir in [&theirs, &ours] {
        ensure!(fs::read(dir.join("folder/small"))? == b"mine", "what is there was replaced");
        ensure!(dir.join("folder/sparse").exists(), "what is not there was not restored");
    }
    // With -v, all of them are listed.
    let named = say(restore(&["-v"]), &ours)?;
    ensure!(named.matches("Skipping existing file").count() == 5, "{named}");
    ensure!(named.contains("Skipping special file fifo"), "{named}");
    let nothing = bench.scratch.dir("nothing")?;
    let dry = say(restore(&["-D"]), &nothing)?;
    let wanted = say(Run::new("btrfs").args(["restore", "-D", "-v", "-v"]), &nothing)?;
    // It also reports its search.
    let would = |text: &str| -> Vec<String> {
        sorted(text).into_iter().filter(|line| !line.contains("earch")).collect()
    };
    ensure!(would(&dry) == would(&wanted), "{dry}\nbtrfs restore:\n{wanted}");
    ensure!(fs::read_dir(&nothing)?.next().is_none(), "a dry run has made something");
    say(restore(&["-o"]), &ours)?;
    ensure!(fs::read(ours.join("folder/small"))? == b"inline", "-o replaces nothing");
    // A link in place of a directory is not followed.
    let (out, elsewhere) = (bench.scratch.dir("out")?, bench.scratch.dir("elsewhere")?);
    symlink(&elsewhere, out.join("folder"))?;
    expect_refusal(restore(&["-o"]).args([&image, &out]), &["folder", "cannot replace it"])?;
    ensure!(fs::read_dir(&elsewhere)?.next().is_none(), "a link was followed");
    Ok(())
}

/// If the root tree is damaged, an older root gives the state of an earlier commit.
fn earlier_root(bench: &Bench) -> Result<()> {
    let (image, _) = source(bench)?;
    let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "nodiscard,commit=300")?;
    fs::write(mount.dir().join("later"), "of the last commit")?;
    mount.unmount()?;
    let list = |words: &[&str]| -> Result<String> {
        let theirs = Run::new("btrfs").args(["restore", "-l"]).args(words).arg(&image).ok()?.stdout_text();
        let ours = bench.creamery().run(["restore", "-l"]).args(words).arg(&image).ok()?.stdout_text();
        ensure!(ours == theirs && ours.contains("FS_TREE"), "{words:?}: {ours}\nbtrfs restore:\n{theirs}");
        Ok(ours)
    };
    let last = list(&[])?;
    flip_byte(&image, superblock_word(&image, FIRST + 80)? + 200)?;
    let restore = || bench.creamery().run(["restore"]);
    let out = bench.scratch.dir("out")?;
    for words in [vec!["-l"], vec![out.to_str().unwrap_or_default()]] {
        expect_refusal(restore().arg(&image).args(&words), &["disk.img", "content is damaged"])?;
        let theirs = Run::new("btrfs").arg("restore").arg(&image).args(&words).output()?;
        ensure!(theirs.code == Some(1), "btrfs restore: {theirs}");
    }
    let found = bench.creamery().run(["rescue", "find-root"]).arg(&image).ok()?.stdout_text();
    let root = found.lines().find_map(|line| line.strip_prefix("Well block ")).context("no older root")?;
    let root = root.split('(').next().unwrap_or_default();
    ensure!(list(&["-t", root])? != last, "the older root tree knows the same roots");
    for text in ["", "-mxS", "-s", "-r 256"] {
        same(bench, &image, &format!("-t {root} {text}"))?;
    }
    ensure!(!bench.scratch.file("ours").join("later").exists(), "that is no earlier commit");
    // A block that is no root of a root tree is refused.
    let other = last.lines().find(|line| line.contains("FS_TREE")).and_then(|line| line.split(' ').nth(6));
    let other = other.context("no address")?;
    for (wrong, says) in [(other, "expected tree 1"), ("5", "a multiple of 4096"), ("0", "0")] {
        expect_refusal(restore().args(["-t", wrong]).args([&image, &out]), &["disk.img", says])?;
    }
    Ok(())
}

fn superblock_copy(bench: &Bench) -> Result<()> {
    let (image, _) = source(bench)?;
    let out = bench.scratch.dir("out")?;
    let restore = |words: &[&str]| bench.creamery().run(["restore"]).args(words);
    for (words, says) in [
        (&["-u", "2"][..], &["superblock copy 2"][..]),
        (&["-r", "9999"], &["9999"]),
        (&["-r", "2"], &["2"]),
        (&["--path-regex", "("], &["invalid regular expression"]),
        (&["-f", "30408704"], &["-f", "not supported"]),
        (&["-d"], &["-d", "not supported"]),
    ] {
        expect_refusal(restore(words).args([&image, &out]), says)?;
        ensure!(restore(words).args([&image, &out]).output()?.code == Some(1), "{words:?}: another status");
    }
    ensure!(restore(&["-u", "3"]).args([&image, &out]).output()?.code == Some(2), "a copy that never is");
    expect_refusal(restore(&[]).args([&image, &bench.scratch.file("nowhere")]), &["nowhere"])?;
    ensure!(fs::read_dir(&out)?.next().is_none(), "what was refused has made something");
    flip_byte(&image, FIRST + 300)?;
    expect_refusal(restore(&["-u", "0"]).args([&image, &out]), &["superblock copy 0", "damaged"])?;
    same(bench, &image, "-u 1 -mxS")
}

/// A sector that does not match its checksum is not restored without the option.
fn ignore_errors(bench: &Bench) -> Result<()> {
    let (image, data) = source(bench)?;
    let bytes = fs::read(&image)?;
    let sector = &data[10 * 4096..11 * 4096];
    let at = bytes.chunks(4096).position(|found| found == sector).context("the sector is nowhere")?;
    flip_byte(&image, at as u64 * 4096 + 7)?;
    let out = bench.scratch.dir("out")?;
    let restore = |words: &[&str]| bench.creamery().run(["restore"]).args(words).args([&image, &out]);
    expect_refusal(restore(&[]), &["/folder/random", "content is damaged"])?;
    ensure!(!out.join("folder/random").exists(), "half a file has the name of a whole one");
    let told = restore(&["-i"]).output()?;
    ensure!(told.code == Some(1), "{told}");
    let said = told.stderr_text();
    ensure!(said.contains("/folder/random: 4096 bytes from 40960 on are lost"), "{said}");
    let mut wanted = data.clone();
    wanted[10 * 4096..11 * 4096].fill(0);
    ensure!(fs::read(out.join("folder/random"))? == wanted, "not the rest of the file");
    ensure!(out.join("below/file").exists(), "it did not go on");
    // btrfs restore ignores checksums.
    let theirs = bench.scratch.dir("theirs")?;
    Run::new("btrfs").arg("restore").args([&image, &theirs]).ok()?;
    restore(&["-o", "--rescue", "idatacsums"]).ok()?;
    let [ours, theirs] = [&out, &theirs].map(|dir| fs::read(dir.join("folder/random")));
    let (ours, theirs) = (ours?, theirs?);
    ensure!(ours == theirs && ours != data, "not what the device has");
    Ok(())
}
