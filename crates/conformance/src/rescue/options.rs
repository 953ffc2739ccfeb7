//! `rescue=`: what is damaged is passed over with the word by which Linux passes over it, and shows the same tree.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::walk::{Compare, Walk, expect_same};
use creamery_testkit::{FuseMount, LoopMount, Random, Run};

use crate::support::{MOUNTED, crc32c, expect_refusal, expect_untouched, flip_byte, inside, mkfs_empty};

pub(crate) fn cases() -> Vec<Case> {
    vec![Case::new("rescue/passed-over-as-on-linux", &MOUNTED, as_on_linux).long()]
}

const SUPERBLOCK: usize = 0x10000;
const SUPERBLOCK_LEN: usize = 0x1000;
/// Where the superblock has its flags, and the one that says that block groups are on the move.
const FLAGS: usize = 56;
const CHANGING_BG_TREE: u64 = 1 << 38;

/// What is damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum OptionsDamage {
    /// The root block of a tree, as btrfs-progs names it: a byte of an item.
    Tree(&'static str),
    /// The checksum of such a block, and nothing else.
    Checksum(&'static str),
    /// A sector of a file.
    Data,
    SuperFlags,
}

/// What is damaged, the words that help, and one that does not. Neither opens it without a word, but for data.
const CASES: [(OptionsDamage, &[&str], &str); 7] = [
    (OptionsDamage::Tree("extent tree"), &["ignorebadroots", "ibadroots", "all"], "idatacsums"),
    (OptionsDamage::Tree("device tree"), &["ibadroots"], "idatacsums"),
    (OptionsDamage::Tree("checksum tree"), &["ibadroots", "idatacsums"], "isuperflags"),
    (OptionsDamage::Checksum("fs tree"), &["ignoremetacsums", "imetacsums", "all"], "ibadroots"),
    (OptionsDamage::Checksum("root tree"), &["imetacsums"], "ibadroots"),
    (OptionsDamage::SuperFlags, &["ignoresuperflags", "isuperflags", "all"], "ibadroots"),
    (OptionsDamage::Data, &["ignoredatacsums", "idatacsums", "all"], "imetacsums"),
];

/// Made by Linux: folders, files of some sectors and of one, and a subvolume.
fn source(bench: &Bench) -> Result<(PathBuf, Vec<u8>)> {
    let image = bench.scratch.file("whole.img");
    mkfs_empty(bench.creamery(), &["-m", "single"], "256M", &image)?;
    let data = Random::new(11).bytes(64 * 4096);
    let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "")?;
    let folder = mount.dir().join("folder");
    fs::create_dir(&folder)?;
    fs::write(folder.join("large"), &data)?;
    for number in 0..300 {
        fs::write(folder.join(format!("small-{number}")), format!("of file {number}"))?;
    }
    Run::new("btrfs").args(["subvolume", "create"]).arg(mount.dir().join("below")).ok()?;
    fs::write(mount.dir().join("below/file"), "in a subvolume")?;
    mount.unmount()?;
    Ok((image, data))
}

/// Where the root block of a tree lies in the image: metadata is there once.
pub(crate) fn root_block(image: &Path, tree: &str) -> Result<u64> {
    let roots =
        Run::new("btrfs").args(["inspect-internal", "dump-tree", "-r"]).arg(image).ok()?.stdout_text();
    let line = roots.lines().find(|line| line.starts_with(tree)).context("no such tree")?;
    let logical = line.rsplit(' ').nth(2).context("no address")?.to_owned();
    let said = Run::new("btrfs-map-logical").args(["-l", &logical]).arg(image).ok()?.stdout_text();
    let mut words = said.split_whitespace().skip_while(|word| *word != "physical");
    Ok(words.nth(1).context("no physical address")?.parse()?)
}

fn damage(image: &Path, what: OptionsDamage, data: &[u8]) -> Result<()> {
    match what {
        OptionsDamage::Tree(tree) => flip_byte(image, root_block(image, tree)? + 200),
        OptionsDamage::Checksum(tree) => flip_byte(image, root_block(image, tree)?),
        OptionsDamage::Data => {
            let bytes = fs::read(image)?;
            let sector = &data[10 * 4096..11 * 4096];
            let at = bytes.chunks(4096).position(|found| found == sector).context("the sector is nowhere")?;
            flip_byte(image, at as u64 * 4096 + 7)
        }
        OptionsDamage::SuperFlags => {
            let mut bytes = fs::read(image)?;
            let block = &mut bytes[SUPERBLOCK..SUPERBLOCK + SUPERBLOCK_LEN];
            let flags = u64::from_le_bytes(block[FLAGS..FLAGS + 8].try_into()?) | CHANGING_BG_TREE;
            block[FLAGS..FLAGS + 8].copy_from_slice(&flags.to_le_bytes());
            let sum = crc32c(&block[32..]);
            block[..4].copy_from_slice(&sum.to_le_bytes());
            Ok(fs::write(image, bytes)?)
        }
    }
}

/// The tree that Linux shows; none when it does not mount.
fn by_linux(bench: &Bench, image: &Path, options: &str) -> Option<Walk> {
    let mut mount = LoopMount::mount(image, &bench.scratch.file("kernel"), options).ok()?;
    let walk = Walk::take(mount.dir());
    mount.unmount_and_tell().ok()?;
    walk.ok()
}

fn by_us(bench: &Bench, image: &Path, options: &str) -> Option<Walk> {
    let mount = FuseMount::mount(bench.creamery(), image, &bench.scratch.file("ours"), options).ok()?;
    let walk = Walk::take(mount.dir());
    mount.unmount().ok()?;
    walk.ok()
}

fn as_on_linux(bench: &Bench) -> Result<()> {
    let (whole, data) = source(bench)?;
    let image = bench.scratch.file("disk.img");
    for (what, helps, helps_not) in CASES {
        Run::new("cp").arg("--sparse=always").args([&whole, &image]).ok()?;
        damage(&image, what, &data)?;
        expect_untouched(&image, || pass_over(bench, &image, what, helps, helps_not))?;
    }
    Ok(())
}

fn pass_over(
    bench: &Bench,
    image: &Path,
    what: OptionsDamage,
    helps: &[&str],
    helps_not: &str,
) -> Result<()> {
    for options in ["ro".to_owned(), format!("ro,rescue={helps_not}")] {
        ensure!(by_linux(bench, image, &options).is_none(), "{what:?}: Linux reads all with {options}");
        ensure!(by_us(bench, image, &options).is_none(), "{what:?}: all is read with {options}");
    }
    let compare = Compare { ctime: true, btime: true, ..Compare::default() };
    for word in helps {
        let options = format!("ro,rescue={word}");
        let wanted =
            by_linux(bench, image, &options).with_context(|| format!("{what:?}: Linux, {options}"))?;
        let found = by_us(bench, image, &options).with_context(|| format!("{what:?}: not with {options}"))?;
        expect_same(&format!("{what:?} with {options}"), &wanted, &found, &compare)?;
        read_by_commands(bench, image, what, word, &wanted)?;
    }
    expect_refusal(
        bench.creamery().run(["mkdir", "--rescue", helps[0]]).arg(inside(image, "/new")),
        &["reading only"],
    )
}

/// What commands read with the same word.
fn read_by_commands(
    bench: &Bench,
    image: &Path,
    what: OptionsDamage,
    word: &str,
    wanted: &Walk,
) -> Result<()> {
    let run = |args: &[&str]| bench.creamery().run(args).args(["--rescue", word]);
    let out = bench.scratch.file("out");
    if out.exists() {
        fs::remove_dir_all(&out)?;
    }
    let copied = run(&["cp", "-a"]).arg(inside(image, "/folder")).arg(&out).ok()?;
    let entry = wanted.entry(b"folder/large").context("Linux does not show the file")?;
    let found = Walk::take(&out)?;
    let ours = found.entry(b"large").context("the file was not copied")?;
    ensure!(ours.content == entry.content, "{what:?}, {word}: another content");
    if let OptionsDamage::Tree(_) = what {
        ensure!(copied.stderr_text().contains("is left out"), "not a word of what is left out: {copied}");
    }
    let cat = run(&["cat"]).arg(inside(image, "/below/file")).ok()?;
    ensure!(cat.stdout == b"in a subvolume", "{cat}");
    let listed = run(&["subvolume", "list"]).arg(image).ok()?;
    ensure!(listed.stdout_text().contains("path below"), "{listed}");
    for args in [["ls", "-l"], ["stat", "--json"], ["subvolume", "show"]] {
        run(&args).arg(inside(image, "/below")).ok()?;
    }
    for args in [&["df"][..], &["subvolume", "get-default"]] {
        run(args).arg(image).ok()?;
    }
    Ok(())
}
