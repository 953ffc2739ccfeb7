//! Items of compressed extents that do not match their data: we read what Linux reads, refuse what it refuses, lose nothing beside them,
//! and can overwrite and remove such a file.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, LoopMount, Run, btrfs_check};

use crate::hostile::Victim;
use crate::item_types::EXTENT_DATA;
use crate::support::{MOUNTED, inside, mkfs_empty};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("compression/items-that-lie", &MOUNTED, items),
        Case::new("compression/data-that-does-not-unpack", &MOUNTED, does_not_unpack),
    ]
}

const CHUNK: u64 = 128 << 10;
const INLINE_LEN: u64 = 2_000;
const MANY_SECTORS: u64 = 1 << 20;

/// A field of the item: its offset and length.
type Field = (usize, usize);
const RAM_BYTES: Field = (8, 8);
const COMPRESSION: Field = (16, 1);
const ENCRYPTION: Field = (17, 1);
const OTHER_ENCODING: Field = (18, 2);
const OFFSET: Field = (37, 8);
const NUM_BYTES: Field = (45, 8);

/// The fate of the file.
#[derive(Clone, Copy, PartialEq, Debug)]
enum FileFate {
    /// It can be read, and has these bytes or those that Linux reads.
    Read,
    /// Only this file cannot be read.
    Lost,
    /// No item in its leaf can be read.
    LeafRefused,
}

use FileFate::{LeafRefused, Lost, Read};

/// Changes of the item of a regular extent.
const REGULAR: [(&str, Field, u64, FileFate); 13] = [
    ("no ram_bytes", RAM_BYTES, 0, Read),
    ("ram_bytes of a sector", RAM_BYTES, 4096, Read),
    ("half the ram_bytes", RAM_BYTES, CHUNK / 2, Read),
    ("a sector of ram_bytes too few", RAM_BYTES, CHUNK - 4096, Read),
    ("too many ram_bytes", RAM_BYTES, 2 * CHUNK, Read),
    ("far too many ram_bytes", RAM_BYTES, 1 << 40, Read),
    ("ragged ram_bytes", RAM_BYTES, CHUNK + 1, LeafRefused),
    ("fewer num_bytes", NUM_BYTES, 4096, Read),
    ("more num_bytes", NUM_BYTES, MANY_SECTORS, Read),
    ("an offset", OFFSET, 4096, Read),
    ("an offset behind it all", OFFSET, MANY_SECTORS, Read),
    ("encrypted", ENCRYPTION, 1, LeafRefused),
    ("otherwise encoded", OTHER_ENCODING, 1, Read),
];

/// Changes of the item of an inline extent.
const INLINE: [(&str, Field, u64, FileFate); 6] = [
    ("no ram_bytes", RAM_BYTES, 0, Read),
    ("a byte of ram_bytes too few", RAM_BYTES, INLINE_LEN - 1, Read),
    ("unknown compression", COMPRESSION, 4, LeafRefused),
    ("no compression", COMPRESSION, 0, LeafRefused),
    ("encrypted", ENCRYPTION, 1, LeafRefused),
    ("otherwise encoded", OTHER_ENCODING, 1, Read),
];

fn items(bench: &Bench) -> Result<()> {
    for algorithm in ["zlib", "lzo", "zstd"] {
        let (whole, image) =
            (bench.scratch.file(&format!("{algorithm}.img")), bench.scratch.file("disk.img"));
        make(bench, algorithm, &whole)?;
        for (file, rows) in [("regular", &REGULAR[..]), ("inline", &INLINE[..])] {
            for row in rows {
                Run::new("cp").args([&whole, &image]).ok()?;
                one(bench, &image, file, *row).with_context(|| format!("{algorithm}, {file}: {}", row.0))?;
            }
        }
    }
    Ok(())
}

/// Offset of the data of an inline extent in its item. LZO data begins with the total length, then the length of a segment.
const INLINE_DATA: usize = 21;

/// Data that does not match its item, or is damaged itself: a read fails with Linux' errno.
fn does_not_unpack(bench: &Bench) -> Result<()> {
    let algorithms = [("zlib", 1), ("lzo", 2), ("zstd", 3)];
    for algorithm in algorithms {
        let whole = bench.scratch.file(&format!("{}.img", algorithm.0));
        make(bench, algorithm.0, &whole)?;
        for other in algorithms.into_iter().filter(|other| *other != algorithm) {
            let what = format!("{} called {}", algorithm.0, other.0);
            for file in ["regular", "inline"] {
                fails_as_on_linux(bench, &whole, file, (COMPRESSION, other.1))
                    .with_context(|| what.clone())?;
            }
        }
        for (behind, value) in [(0, u64::MAX), (0, 5), (4, u64::from(u32::MAX)), (8, 0), (8, u64::MAX)] {
            let change = ((INLINE_DATA + behind, 4), value);
            let what = || format!("{}: {value:#x} at {behind}", algorithm.0);
            fails_as_on_linux(bench, &whole, "inline", change).with_context(what)?;
        }
    }
    Ok(())
}

fn fails_as_on_linux(bench: &Bench, whole: &Path, file: &str, (field, value): (Field, u64)) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    Run::new("cp").arg(whole).arg(&image).ok()?;
    edit(bench, &image, file, field, value)?;
    let read = |dir: &Path| fs::read(dir.join(file)).map_err(|error| error.raw_os_error());
    let mut linux = LoopMount::mount(&image, &bench.scratch.file("kernel"), "ro")?;
    let want = read(linux.dir());
    let logged = linux.unmount_and_tell()?;
    let fuse = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), "ro")?;
    let have = read(fuse.dir());
    fuse.unmount()?;
    ensure!(want.is_err(), "{file}: Linux reads it");
    ensure!(have == want, "{file}: {have:?}, Linux gives {want:?} and logs {logged:?}");
    Ok(())
}

fn text(len: u64) -> Vec<u8> {
    let lines = (0_u64..).flat_map(|number| format!("line {number} of what gets shorter\n").into_bytes());
    lines.take(usize::try_from(len).expect("small")).collect()
}

fn make(bench: &Bench, algorithm: &str, image: &Path) -> Result<()> {
    mkfs_empty(bench.creamery(), &[], "256M", image)?;
    let options = format!("compress-force={algorithm}");
    let linux = LoopMount::mount(image, &bench.scratch.file("kernel"), &options)?;
    for name in ["before", "regular", "behind"] {
        fs::write(linux.dir().join(name), text(CHUNK))?;
    }
    fs::write(linux.dir().join("inline"), text(INLINE_LEN))?;
    linux.unmount()
}

fn one(
    bench: &Bench,
    image: &Path,
    file: &str,
    (_, (at, len), value, wanted): (&str, Field, u64, FileFate),
) -> Result<()> {
    edit(bench, image, file, (at, len), value)?;
    let kernel = bench.scratch.file("kernel");
    let place = |name: &str| inside(image, &format!("/{name}"));
    let cat = |name: &str| bench.creamery().run(["cat"]).arg(place(name)).output();
    let ours = cat(file)?;
    ensure!(ours.code == Some(i32::from(wanted != Read)), "{ours}");
    let Ok(linux) = LoopMount::mount(image, &kernel, "ro") else {
        ensure!(wanted == LeafRefused, "Linux does not mount it");
        ensure!(cat("before")?.code == Some(1), "read beside what Linux refuses");
        return Ok(());
    };
    ensure!(wanted != LeafRefused, "Linux mounts it");
    let read = fs::read(linux.dir().join(file));
    ensure!(read.is_err() == (wanted == Lost), "Linux reads it: {read:?}");
    if let Ok(read) = read {
        let differs = read.iter().zip(&ours.stdout).position(|(linux, ours)| linux != ours);
        let lengths = (read.len(), ours.stdout.len());
        ensure!(read == ours.stdout, "Linux reads something else from {differs:?} on, lengths {lengths:?}");
    }
    linux.unmount()?;
    for name in ["before", "behind"] {
        ensure!(cat(name)?.stdout == text(CHUNK), "{name} is something else");
    }
    // The extent tree identifies references by the offset at which their extents would begin in the file. With another offset there is no
    // such reference to drop, and an attempt aborts, as on Linux.
    if at == OFFSET.0 { Ok(()) } else { change(bench, image, file) }
}

/// Changes a field in the items of the file's extents.
fn edit(bench: &Bench, image: &Path, file: &str, (at, len): Field, value: u64) -> Result<()> {
    let number = inode_number(bench, image, file)?;
    let mut victim = Victim::new(image.to_owned())?;
    let edited = victim.edit(EXTENT_DATA, &mut |key, data| {
        let is_it = key[..8] == number.to_le_bytes();
        if is_it {
            data[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
        }
        is_it
    })?;
    // More than one, if an older block has the item, too.
    ensure!(edited > 0, "there is no item");
    Ok(())
}

fn inode_number(bench: &Bench, image: &Path, file: &str) -> Result<u64> {
    let said = bench.creamery().run(["stat", "--json"]).arg(inside(image, &format!("/{file}"))).ok()?;
    let json: serde_json::Value = serde_json::from_slice(&said.stdout)?;
    json[0]["inode"].as_u64().context("the inode's number")
}

/// Overwrites a part of the file, which cuts the extent in two, and then removes the file. Linux goes on with the rest.
fn change(bench: &Bench, image: &Path, file: &str) -> Result<()> {
    const AT: usize = 4_096;
    let fuse = FuseMount::mount(bench.creamery(), image, &bench.scratch.file("fuse"), "")?;
    let path = fuse.dir().join(file);
    let mut wanted = fs::read(&path)?;
    if wanted.len() > AT {
        File::options().write(true).open(&path)?.write_all_at(b"something new", AT as u64)?;
        wanted[AT..AT + 13].copy_from_slice(b"something new");
    }
    let found = fs::read(&path)?;
    ensure!(found == wanted, "what was written over it spoiled the rest");
    fuse.unmount()?;
    let found = bench.creamery().run(["cat"]).arg(inside(image, &format!("/{file}"))).ok()?.stdout;
    ensure!(found == wanted, "what was written over it spoiled the rest when written back");
    bench.creamery().run(["rm"]).arg(inside(image, &format!("/{file}"))).ok()?;
    btrfs_check(image)?;
    let linux = LoopMount::mount(image, &bench.scratch.file("kernel"), "")?;
    ensure!(!linux.dir().join(file).exists(), "it is there");
    ensure!(fs::read(linux.dir().join("behind"))? == text(CHUNK), "another file is something else");
    linux.unmount()
}
