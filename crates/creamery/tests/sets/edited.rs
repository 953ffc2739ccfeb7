//! Members with false fields: for any superblocks and chunks with valid checksums, a set is read or rejected in one line, and nothing is
//! written to any of its files. The kernel never sees these sets.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use creamery::check::{CheckOptions, NoProgress, check};
use creamery::rescue::Rescue;
use creamery::{Error, Image, ImageOptions};
use creamery_codec::ChecksumType;
use creamery_format::{BlockRef, KeyType, RawSuperblock, SUPERBLOCK_LEN, Superblock, seal};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{Run, seek_data, seek_hole};

use crate::kernel_set::KernelSet;
use crate::oracle::Oracle;
use crate::seen::{Seen, expect_same};
use crate::{NEEDS, SetShape};

/// The superblocks of devices of this size.
const SUPERBLOCKS: [u64; 2] = [64 << 10, 64 << 20];
const NODE: u32 = 16 << 10;

/// A set that is copied and edited.
struct Edited<'a> {
    files: Vec<PathBuf>,
    oracle: &'a Oracle,
}

/// The outcome for a set.
enum Comes {
    /// It is read as before.
    Same,
    /// It is rejected, and the message has these words.
    Refused(&'static [&'static str]),
    /// The set is read as before, and the check reports the damage.
    Found(&'static [&'static str]),
    /// It is read or rejected.
    Ends,
}

type Edit = fn(&Edited<'_>) -> Result<()>;

/// The name of an edit, the edit, and its outcome.
type Row = (&'static str, Edit, Comes);

pub(crate) fn cases() -> Vec<Case> {
    let sets = [("raid1", 2), ("raid10", 4), ("raid6", 4)];
    let case = |(profile, members)| {
        let shape = SetShape { profile, members, checksum: "crc32c", node: NODE };
        Case::new(format!("set-matrix/edited-{profile}"), &NEEDS, move |bench| edited(bench, &shape))
    };
    sets.map(case).into()
}

fn edited(bench: &Bench, shape: &SetShape) -> Result<()> {
    let made = KernelSet::make(bench, shape)?;
    let truth = made.kernel_view(&made.all(), "ro")?;
    let whole = made.copy_in(&bench.scratch.dir("whole")?)?;
    made.end()?;
    let oracle = Oracle::of(&whole)?;
    let mut failed = Vec::new();
    let items = chunk_edits().into_iter().map(|(name, edit, comes)| match comes {
        // A leaf with this content is not a good copy, and parity has another one.
        Comes::Found(_) if oracle.parity() > 0 => (name, edit, Comes::Same),
        comes => (name, edit, comes),
    });
    let rest = superblock_edits().into_iter().chain(stripe_edits()).chain(file_edits());
    for (name, edit, comes) in items.chain(rest) {
        let dir = bench.scratch.dir("edited")?;
        Run::new("cp").args(["--sparse=always", "--"]).args(&whole).arg(&dir).ok()?;
        let files = whole.iter().map(|file| dir.join(file.file_name().unwrap_or_default())).collect();
        let set = Edited { files, oracle: &oracle };
        if let Err(error) = edit(&set).and_then(|()| judge(&set, &truth, &comes)) {
            failed.push(format!("{name}: {error}"));
        }
        std::fs::remove_dir_all(dir)?;
    }
    ensure!(failed.is_empty(), "{} edits:\n  {}", failed.len(), failed.join("\n  "));
    Ok(())
}

/// Tries every way to open the set: as it is, degraded, for rescue, and the check.
fn judge(set: &Edited<'_>, truth: &Seen, comes: &Comes) -> Result<()> {
    let before = set.files.iter().map(|file| written(file)).collect::<Result<Vec<_>>>()?;
    match (seen(&Image::options(), &set.files[0]), comes) {
        (Ok(seen), Comes::Same) => expect_same("the edited set", truth, &seen)?,
        (Err(error), Comes::Refused(words) | Comes::Found(words)) => {
            let text = format!("{error}; {}", error.advice().unwrap_or_default());
            ensure!(words.iter().all(|word| text.contains(word)), "{text} has not all of {words:?}");
        }
        (Ok(_), Comes::Refused(_) | Comes::Found(_)) => bail!("it is not refused"),
        (Err(error), Comes::Same) => return Err(error).context("it is refused"),
        (_, Comes::Ends) => {}
    }
    for first in [&set.files[0], &set.files[set.files.len() - 1]] {
        let _ = seen(&Image::options().degraded(), first);
        let _ = seen(&Image::options().rescue(Rescue::ALL), first);
        let options = CheckOptions { check_parity: true, ..CheckOptions::default() };
        let _ = check([first], &options, &NoProgress).map_err(one_line);
        let report = check(&set.files, &options, &NoProgress).map_err(one_line);
        if let Comes::Found(_) = comes {
            ensure!(!report.context("the check reads it")?.is_clean(), "the check finds nothing");
        }
    }
    let after = set.files.iter().map(|file| written(file)).collect::<Result<Vec<_>>>()?;
    ensure!(before == after, "a reader has written");
    Ok(())
}

fn seen(options: &ImageOptions, first: &Path) -> Result<Seen, Error> {
    let fs = options.open(first).map_err(one_line)?;
    Ok(Seen::by_us(&fs).expect("the root can be walked"))
}

fn one_line(error: Error) -> Error {
    assert!(!error.to_string().contains('\n'), "{error}");
    error
}

/// The offset of a range, and its bytes.
type Range = (u64, Vec<u8>);

/// The length of a file, and all its data.
fn written(path: &Path) -> Result<(u64, Vec<Range>)> {
    let file = File::open(path)?;
    let (len, mut ranges, mut at) = (file.metadata()?.len(), Vec::new(), 0);
    while let Some(from) = seek_data(&file, at)? {
        at = seek_hole(&file, from)?.unwrap_or(len);
        let mut bytes = vec![0; usize::try_from(at - from)?];
        file.read_exact_at(&mut bytes, from)?;
        ranges.push((from, bytes));
    }
    Ok((len, ranges))
}

impl Edited<'_> {
    /// Changes all superblocks of a member, and seals them.
    fn superblocks(&self, member: usize, edit: impl Fn(&mut RawSuperblock)) -> Result<()> {
        let file = OpenOptions::new().read(true).write(true).open(&self.files[member])?;
        for at in SUPERBLOCKS {
            let mut bytes = vec![0; SUPERBLOCK_LEN];
            file.read_exact_at(&mut bytes, at)?;
            let mut superblock = Superblock::from_bytes(&bytes, at)?;
            edit(superblock.raw_mut());
            file.write_all_at(&superblock.to_bytes(at), at)?;
        }
        Ok(())
    }

    /// Changes the items of chunks of the chunk tree, which is one leaf, and seals it. `edit` gets each except those of the superblock.
    fn chunks(&self, edit: impl Fn(usize, &mut [u8])) -> Result<()> {
        let spots = self.oracle.copies(self.oracle.chunk_root)?;
        let mut bytes = vec![0; usize::try_from(NODE)?];
        let first = File::open(&self.files[spots[0].member])?;
        first.read_exact_at(&mut bytes, spots[0].offset)?;
        let block = BlockRef::new(&bytes);
        ensure!(block.is_leaf(), "the chunk tree is a leaf");
        let start = bytes.as_ptr() as usize;
        let items: Vec<(usize, usize)> = (0..block.count())
            .filter(|&slot| block.key(slot).kind == KeyType::CHUNK_ITEM)
            .map(|slot| (block.data(slot).as_ptr() as usize - start, block.data(slot).len()))
            .collect();
        for (number, (at, len)) in items.into_iter().enumerate().skip(1) {
            edit(number, &mut bytes[at..at + len]);
        }
        seal(&mut bytes, ChecksumType::Crc32c);
        for spot in spots {
            OpenOptions::new()
                .write(true)
                .open(&self.files[spot.member])?
                .write_all_at(&bytes, spot.offset)?;
        }
        Ok(())
    }

    fn resize(&self, member: usize, len: u64) -> Result<()> {
        Ok(OpenOptions::new().write(true).open(&self.files[member])?.set_len(len)?)
    }
}

fn superblock_edits() -> Vec<Row> {
    vec![
        (
            "no devices counted",
            |set| set.superblocks(0, |raw| raw.num_devices = 0.into()),
            Comes::Refused(&["no devices, expected 1, found 0"]),
        ),
        ("one device counted", |set| set.superblocks(0, |raw| raw.num_devices = 1.into()), Comes::Same),
        ("255 devices counted", |set| set.superblocks(0, |raw| raw.num_devices = 255.into()), Comes::Same),
        (
            "too many devices counted",
            |set| {
                (0..set.files.len())
                    .try_for_each(|member| set.superblocks(member, |raw| raw.num_devices = u64::MAX.into()))
            },
            Comes::Same,
        ),
        ("another UUID of a device", |set| set.superblocks(1, |raw| raw.dev_item.uuid[3] ^= 1), Comes::Ends),
        (
            "the number of another member",
            |set| set.superblocks(1, |raw| raw.dev_item.devid = 1.into()),
            Comes::Refused(&["device 2 is missing", "--degraded"]),
        ),
        (
            "a number that no device has",
            |set| set.superblocks(1, |raw| raw.dev_item.devid = 77.into()),
            Comes::Refused(&["device 2 is missing", "--degraded"]),
        ),
        ("number 0", |set| set.superblocks(1, |raw| raw.dev_item.devid = 0.into()), Comes::Ends),
        (
            "the last number",
            |set| set.superblocks(1, |raw| raw.dev_item.devid = u64::MAX.into()),
            Comes::Ends,
        ),
        (
            "another filesystem's member",
            |set| {
                set.superblocks(1, |raw| {
                    raw.fsid[5] ^= 1;
                    raw.dev_item.fsid[5] ^= 1;
                })
            },
            Comes::Refused(&["device 2 is missing", "--degraded"]),
        ),
        (
            "a device of no bytes",
            |set| set.superblocks(1, |raw| raw.dev_item.total_bytes = 0.into()),
            Comes::Ends,
        ),
        (
            "a device without end",
            |set| set.superblocks(1, |raw| raw.dev_item.total_bytes = u64::MAX.into()),
            Comes::Ends,
        ),
        (
            "a later commit",
            |set| set.superblocks(1, |raw| raw.generation = (raw.generation.get() + 1).into()),
            Comes::Ends,
        ),
        ("the last commit", |set| set.superblocks(1, |raw| raw.generation = u64::MAX.into()), Comes::Ends),
        (
            "an array of no chunks",
            |set| set.superblocks(1, |raw| raw.sys_chunk_array_size = 0.into()),
            Comes::Ends,
        ),
        ("another checksum", |set| set.superblocks(1, |raw| raw.csum_type = 1.into()), Comes::Ends),
        ("another size of nodes", |set| set.superblocks(1, |raw| raw.nodesize = 4096.into()), Comes::Ends),
    ]
}

fn put(item: &mut [u8], at: usize, value: &[u8]) {
    item[at..at + value.len()].copy_from_slice(value);
}

/// Offsets of the fields of a chunk's item.
const LENGTH: usize = 0;
const ELEMENT_LENGTH: usize = 16;
const PROFILE: usize = 24;
const COUNT: usize = 44;
const SUB_STRIPES: usize = 46;
const FIRST_STRIPE: usize = 48;
const STRIPE: usize = 32;

fn chunk_edits() -> Vec<Row> {
    vec![
        (
            "no stripes",
            |set| set.chunks(|_, item| put(item, COUNT, &0_u16.to_le_bytes())),
            Comes::Found(&["CHUNK_ITEM"]),
        ),
        (
            "65,535 stripes",
            |set| set.chunks(|_, item| put(item, COUNT, &[0xff; 2])),
            Comes::Found(&["CHUNK_ITEM"]),
        ),
        ("one stripe less", |set| set.chunks(|_, item| item[COUNT] -= 1), Comes::Found(&["CHUNK_ITEM"])),
        (
            "three sub stripes",
            |set| set.chunks(|_, item| put(item, SUB_STRIPES, &3_u16.to_le_bytes())),
            Comes::Ends,
        ),
        ("no sub stripes", |set| set.chunks(|_, item| put(item, SUB_STRIPES, &[0; 2])), Comes::Ends),
        ("65,535 sub stripes", |set| set.chunks(|_, item| put(item, SUB_STRIPES, &[0xff; 2])), Comes::Ends),
        (
            "elements of no bytes",
            |set| set.chunks(|_, item| put(item, ELEMENT_LENGTH, &[0; 8])),
            Comes::Found(&["stripe length"]),
        ),
        (
            "elements of 4 KiB",
            |set| set.chunks(|_, item| put(item, ELEMENT_LENGTH, &4096_u64.to_le_bytes())),
            Comes::Ends,
        ),
        (
            "endless elements",
            |set| set.chunks(|_, item| put(item, ELEMENT_LENGTH, &(1_u64 << 63).to_le_bytes())),
            Comes::Found(&["stripe length"]),
        ),
        (
            "elements longer than the chunk",
            |set| set.chunks(|_, item| put(item, ELEMENT_LENGTH, &(1_u64 << 56).to_le_bytes())),
            Comes::Ends,
        ),
        ("no bytes", |set| set.chunks(|_, item| put(item, LENGTH, &[0; 8])), Comes::Found(&["length"])),
        ("endless", |set| set.chunks(|_, item| put(item, LENGTH, &[0xff; 8])), Comes::Found(&["length"])),
        (
            "all profiles",
            |set| set.chunks(|_, item| put(item, PROFILE + 1, &[0xff])),
            Comes::Found(&["CHUNK_ITEM"]),
        ),
    ]
}

fn stripe_edits() -> Vec<Row> {
    vec![
        (
            "a device that is not there",
            |set| set.chunks(|_, item| put(item, FIRST_STRIPE, &77_u64.to_le_bytes())),
            Comes::Ends,
        ),
        (
            "stripes on one device",
            |set| {
                set.chunks(|_, item| item.copy_within(FIRST_STRIPE..FIRST_STRIPE + 8, FIRST_STRIPE + STRIPE))
            },
            Comes::Ends,
        ),
        (
            "stripes that overlap",
            |set| {
                set.chunks(|_, item| {
                    item.copy_within(FIRST_STRIPE..FIRST_STRIPE + STRIPE, FIRST_STRIPE + STRIPE)
                })
            },
            Comes::Ends,
        ),
        (
            "chunks that overlap on a device",
            |set| set.chunks(|_, item| put(item, FIRST_STRIPE + 8, &(30_u64 << 20).to_le_bytes())),
            Comes::Ends,
        ),
        (
            "a stripe behind its device",
            |set| set.chunks(|_, item| put(item, FIRST_STRIPE + 8, &(1_u64 << 40).to_le_bytes())),
            Comes::Ends,
        ),
        (
            "a stripe at the end of all",
            |set| set.chunks(|_, item| put(item, FIRST_STRIPE + 8, &(u64::MAX - 4095).to_le_bytes())),
            Comes::Refused(&["stripe offset"]),
        ),
        ("another UUID of a stripe", |set| set.chunks(|_, item| item[FIRST_STRIPE + 16] ^= 1), Comes::Ends),
    ]
}

fn file_edits() -> Vec<Row> {
    vec![
        ("a member of no bytes", |set| set.resize(1, 0), Comes::Refused(&["device 2 is missing"])),
        ("a member of 1 MiB", |set| set.resize(1, 1 << 20), Comes::Ends),
        ("a member of 100 MiB", |set| set.resize(1, 100 << 20), Comes::Ends),
        ("a longer member", |set| set.resize(1, 1 << 30), Comes::Same),
        (
            "names exchanged",
            |set| {
                let third = set.files[0].with_extension("third");
                std::fs::rename(&set.files[0], &third)?;
                std::fs::rename(&set.files[1], &set.files[0])?;
                Ok(std::fs::rename(third, &set.files[1])?)
            },
            Comes::Same,
        ),
        (
            "a backup copy of a member beside it",
            |set| Run::new("cp").arg(&set.files[1]).arg(set.files[1].with_extension("bak")).ok().map(drop),
            Comes::Refused(&["m2.img", "m2.bak", "both device 2"]),
        ),
        (
            "the other way round",
            |set| Ok(std::fs::copy(&set.files[0], &set.files[1]).map(drop)?),
            Comes::Refused(&["device 2 is missing"]),
        ),
    ]
}
