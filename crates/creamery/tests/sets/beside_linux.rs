//! Scrubs, judged by Linux' own. A repair of ours restores every byte, and Linux' scrub then finds nothing and changes nothing;
//! after a repair of Linux, ours finds the set whole.
//!
//! Rot goes into sectors in use: of data, of tree blocks, of P and Q. Data without checksums gets none, nor does its row: nothing shows the
//! correct content there. Linux meets rot only beneath a filesystem that it mounted whole.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use creamery::NamedSet;
use creamery::check::scrub::{Counts, NoProgress, Scrub};
use creamery_format::{BlockGroupFlags, SUPERBLOCK_OFFSETS};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{Random, Run, seed_of, share_or_whole};

use crate::kernel_set::KernelSet;
use crate::oracle::{Oracle, OracleSpot, SECTOR, extents, read_sector, sectors};
use crate::rot::is_nocow;
use crate::seen::Seen;
use crate::{MEMBERS_MAX, NEEDS, NODES, PROFILES, SetShape};

const CHECKSUMS: [&str; 4] = ["crc32c", "xxhash", "sha256", "blake2"];
/// Sets that every change tests.
const SHARE: usize = 3;
/// Members beyond the profile's minimum.
const MORE: u64 = 3;

/// The kind of rotten sectors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RotKind {
    Data,
    TreeBlocks,
    Parity,
    Superblock,
    /// All kinds.
    All,
}

const KINDS: [RotKind; 5] =
    [RotKind::Data, RotKind::TreeBlocks, RotKind::Parity, RotKind::Superblock, RotKind::All];

/// A sector in use at an address: the places of its copies, then those of its parity.
struct SectorCopies {
    is_data: bool,
    copies: Vec<OracleSpot>,
    parity: Vec<OracleSpot>,
    /// The first copies of all columns of its row.
    row: Vec<OracleSpot>,
}

pub(crate) fn cases() -> Vec<Case> {
    let mut shapes: Vec<SetShape> =
        PROFILES.iter().flat_map(|&(profile, least)| shapes_of(profile, least)).collect();
    Random::new(seed_of("scrubs beside Linux")).shuffle(&mut shapes);
    let count = share_or_whole(SHARE, shapes.len());
    shapes.truncate(count);
    let case = |shape: SetShape| {
        let name = shape.name().replace("set-matrix/", "set-matrix/scrub-beside-linux-");
        Case::new(name, &NEEDS, move |bench| both(bench, &shape))
    };
    shapes.into_iter().map(case).collect()
}

fn shapes_of(profile: &'static str, least: usize) -> impl Iterator<Item = SetShape> {
    let all = CHECKSUMS.into_iter().flat_map(|checksum| NODES.map(|node| (checksum, node)));
    all.map(move |(checksum, node)| {
        let shape = SetShape { profile, members: least, checksum, node };
        let more = usize::try_from(Random::new(seed_of(&shape.name())).below(MORE)).expect("few");
        SetShape { members: (least + more).min(MEMBERS_MAX), ..shape }
    })
}

fn both(bench: &Bench, shape: &SetShape) -> Result<()> {
    let made = KernelSet::make(bench, shape).context("Linux makes the set")?;
    let truth = made.kernel_view(&made.all(), "ro")?;
    let used = made.used_extents()?;
    let [before, ours, theirs] =
        ["before", "ours", "theirs"].map(|name| -> Result<_> { made.copy_in(&bench.scratch.dir(name)?) });
    let (before, ours, theirs) = (before?, ours?, theirs?);
    made.end()?;
    let oracle = Oracle::of(&before)?;
    let places = places(&before, &oracle, &truth, &used)?;
    let mut random = Random::new(seed_of(&shape.name()));
    let rotten = |count: usize, random: &mut Random| -> BTreeSet<usize> {
        let mut all: Vec<usize> = (0..oracle.stripes_max()).collect();
        random.shuffle(&mut all);
        all.into_iter().take(count).collect()
    };
    for kind in KINDS {
        let rotten = rotten(oracle.borne().max(1), &mut random);
        let set = (&before[..], &ours[..]);
        mended_by_us(set, &oracle, &places, (kind, &rotten))
            .with_context(|| format!("{kind:?} rots in the stripes {rotten:?}, and ours mends it"))?;
    }
    found_whole_by_linux(bench, &before, &ours, &places).context("Linux looks at what ours mended")?;
    let rotten = rotten(1, &mut random);
    mended_by_linux(bench, &before, &theirs, (&oracle, &places, &rotten))
        .with_context(|| format!("the stripes {rotten:?} rot, and Linux mends it"))
}

/// The places of all sectors in use that are judged: no sector of their rows is data without a checksum.
fn places(
    files: &[PathBuf],
    oracle: &Oracle,
    truth: &Seen,
    used: &[(u64, u64)],
) -> Result<Vec<SectorCopies>> {
    let mut nocow = BTreeSet::new();
    for (path, _) in truth.files().filter(|(path, _)| is_nocow(path)) {
        for extent in extents(files, path)? {
            nocow.extend(sectors(&extent).map(|(_, logical)| logical));
        }
    }
    ensure!(!nocow.is_empty(), "some data has no checksums");
    let mut places = Vec::new();
    for logical in used.iter().flat_map(|&(start, len)| (start..start + len).step_by(SECTOR as usize)) {
        let chunk = oracle.chunk_at(logical)?;
        let has_parity = chunk.flags.intersects(BlockGroupFlags::RAID5 | BlockGroupFlags::RAID6);
        let columns = if has_parity { oracle.row(logical)?.1 } else { vec![logical] };
        if columns.iter().any(|at| nocow.contains(at)) {
            continue;
        }
        let of_chunk = if has_parity { oracle.parity() } else { 0 };
        places.push(SectorCopies {
            is_data: chunk.flags.contains(BlockGroupFlags::DATA),
            copies: oracle.copies(logical)?,
            parity: (0..of_chunk).map(|which| oracle.parity_spot(logical, which)).collect::<Result<_>>()?,
            row: columns.iter().map(|&at| oracle.spot(at)).collect::<Result<_>>()?,
        });
    }
    ensure!(places.iter().any(|place| place.is_data) && places.iter().any(|place| !place.is_data), "both");
    Ok(places)
}

/// The sectors with rot of this kind. If the profile tolerates no loss, tree blocks stay whole.
fn spots(
    oracle: &Oracle,
    places: &[SectorCopies],
    kind: RotKind,
    rotten: &BTreeSet<usize>,
) -> BTreeSet<(usize, u64)> {
    let mut spots = BTreeSet::new();
    for place in places {
        let is_hit = match kind {
            RotKind::Data => place.is_data,
            RotKind::TreeBlocks => !place.is_data,
            RotKind::All => true,
            RotKind::Parity | RotKind::Superblock => false,
        };
        let is_borne = place.is_data || oracle.borne() > 0;
        let copies = place.copies.iter().filter(|_| is_hit && is_borne);
        let parity = place.parity.iter().filter(|_| matches!(kind, RotKind::Parity | RotKind::All));
        let hit = copies.chain(parity).filter(|spot| rotten.contains(&spot.stripe));
        spots.extend(hit.map(|spot| (spot.member, spot.offset)));
    }
    spots
}

fn invert(files: &[PathBuf], spots: &BTreeSet<(usize, u64)>) -> Result<()> {
    for &(member, offset) in spots {
        let mut bytes = read_sector(&files[member], offset)?;
        bytes.iter_mut().step_by(7).for_each(|byte| *byte = !*byte);
        File::options().write(true).open(&files[member])?.write_all_at(&bytes, offset)?;
    }
    Ok(())
}

/// Our scrub repairs everything that the profile tolerates, and every byte of every member is restored.
fn mended_by_us(
    (before, files): (&[PathBuf], &[PathBuf]),
    oracle: &Oracle,
    places: &[SectorCopies],
    (kind, rotten): (RotKind, &BTreeSet<usize>),
) -> Result<()> {
    let spots = spots(oracle, places, kind, rotten);
    invert(files, &spots)?;
    let superblock = (files.len() - 1, SUPERBLOCK_OFFSETS[1]);
    let copies =
        BTreeSet::from_iter(matches!(kind, RotKind::Superblock | RotKind::All).then_some(superblock));
    invert(files, &copies)?;
    if spots.is_empty() && copies.is_empty() {
        return Ok(());
    }
    let counts = scrub(Scrub::default(), files)?;
    let is_lost = oracle.borne() == 0 && !spots.is_empty();
    ensure!(counts.errors() > 0 && (counts.uncorrectable_errors > 0) == is_lost, "{counts:?}");
    ensure!(counts.super_errors == copies.len() as u64, "{counts:?}");
    if kind == RotKind::Data {
        ensure!(counts.csum_errors == spots.len() as u64, "{} sectors rot: {counts:?}", spots.len());
    }
    if is_lost {
        ensure!(counts.uncorrectable_errors == spots.len() as u64, "{} are lost: {counts:?}", spots.len());
        invert(files, &spots)?;
    }
    let again = scrub(Scrub::default().read_only(), files)?;
    ensure!(again.errors() == 0, "it is mended: {again:?}");
    same_members(before, files)
}

fn scrub(scrub: Scrub, files: &[PathBuf]) -> Result<Counts> {
    let set = NamedSet::new(&files[0]).devices(&files[1..]);
    Ok(scrub.run(set, &NoProgress)?.counts())
}

fn same_members(before: &[PathBuf], files: &[PathBuf]) -> Result<()> {
    for (before, file) in before.iter().zip(files) {
        Run::new("cmp").args([before, file]).ok()?;
    }
    Ok(())
}

/// Linux' own scrub finds nothing, and leaves every row whose data no commit has changed: otherwise it would write different parity.
fn found_whole_by_linux(
    bench: &Bench,
    before: &[PathBuf],
    files: &[PathBuf],
    places: &[SectorCopies],
) -> Result<()> {
    let linux = KernelSet::of(bench, files)?;
    let said = linux.mounted(&linux.all(), "noatime", true, |dir| scrub_of_linux(dir, &[]))?;
    ensure!(said.contains("no errors found"), "{said}");
    linux.end()?;
    same_rows(before, files, places)
}

fn scrub_of_linux(dir: &Path, words: &[&str]) -> Result<String> {
    let run = Run::new("btrfs").args(["scrub", "start", "-B"]).args(words).arg(dir).output()?;
    // 3: a loss.
    ensure!(matches!(run.code, Some(0 | 3)), "{run}");
    Ok(run.stdout_text())
}

/// A row with unchanged data has unchanged copies and parity. Data never changes; tree blocks do if Linux commits.
fn same_rows(before: &[PathBuf], files: &[PathBuf], places: &[SectorCopies]) -> Result<()> {
    let is_same = |spot: &OracleSpot| -> Result<bool> {
        let sector = |files: &[PathBuf]| read_sector(&files[spot.member], spot.offset);
        Ok(sector(before)? == sector(files)?)
    };
    let all_same = |spots: &[OracleSpot]| -> Result<bool> {
        spots.iter().try_fold(true, |same, spot| Ok(same && is_same(spot)?))
    };
    let mut compared = 0;
    for place in places.iter() {
        if !place.is_data && !all_same(&place.row)? {
            continue;
        }
        ensure!(all_same(&place.row)? && all_same(&place.copies)?, "data or a copy at {:?}", place.copies);
        ensure!(all_same(&place.parity)?, "parity at {:?}", place.parity);
        compared += 1;
    }
    ensure!(compared > 0, "some rows are as they were");
    Ok(())
}

/// Linux repairs rot beneath its own mount. Our scrub then finds nothing, or as many errors as Linux if the profile does not tolerate the
/// loss.
fn mended_by_linux(
    bench: &Bench,
    before: &[PathBuf],
    files: &[PathBuf],
    (oracle, places, rotten): (&Oracle, &[SectorCopies], &BTreeSet<usize>),
) -> Result<()> {
    let spots = spots(oracle, places, RotKind::All, rotten);
    let linux = KernelSet::of(bench, files)?;
    let is_borne = oracle.borne() > 0;
    // Linux logs its findings.
    let said = linux.mounted(&linux.all(), "noatime", false, |dir| {
        // Its trees are in memory before anything rots.
        let whole = scrub_of_linux(dir, &["-r"])?;
        ensure!(whole.contains("no errors found"), "{whole}");
        invert(files, &spots)?;
        scrub_of_linux(dir, &["-R", "-d"])
    })?;
    linux.end()?;
    let sum = |name: &str| -> u64 {
        let of = |line: &str| line.trim().strip_prefix(name)?.strip_prefix(": ")?.parse::<u64>().ok();
        said.lines().filter_map(of).sum()
    };
    let uncorrectable = sum("uncorrectable_errors");
    // Linux does not count a column that it repairs while it checks the parity of its row.
    let is_counted = oracle.parity() > 0 || sum("csum_errors") > 0;
    ensure!(is_counted && (uncorrectable == 0) == is_borne, "Linux found:\n{said}");
    let counts = scrub(Scrub::default().read_only(), files)?;
    if is_borne {
        ensure!(counts.errors() == 0, "Linux mended it, ours finds {counts:?}\n{said}");
        return same_rows(before, files, places);
    }
    ensure!(counts.csum_errors == sum("csum_errors"), "ours finds {counts:?}, Linux\n{said}");
    Ok(())
}
