//! Rot in one stripe of every chunk, and in two if the profile tolerates two. With parity, a stripe has each column in turn.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use creamery::Image;
use creamery::extents::FiemapFlags;
use creamery_format::{BlockGroupFlags, SUPERBLOCK_LEN, SUPERBLOCK_OFFSETS};
use creamery_testkit::{seek_data, seek_hole};
use creamery_volume::Chunk;

use crate::checked;
use crate::oracle::{Oracle, SECTOR, extents, member, read_sector, sectors};
use crate::seen::{Seen, expect_same};

/// Findings: one copy of a tree block, or of data, is bad while another is good.
const BLOCK_COPY: u16 = 215;
const DATA_COPY: u16 = 606;

/// Puts rot into each stripe, and removes it again.
pub(crate) fn each(files: &[PathBuf], oracle: &Oracle, truth: &Seen) -> Result<()> {
    let stripes = oracle.stripes_max();
    let borne = oracle.borne();
    let mut seen = 0;
    let one = (0..stripes).map(|first| vec![first]);
    let two = (0..stripes).flat_map(|first| (first + 1..stripes).map(move |second| vec![first, second]));
    for rotten in one.chain(two).filter(|rotten| rotten.len() <= borne.max(1)) {
        let judge = || -> Result<usize> {
            turn(files, oracle, &rotten)?;
            let count = match borne {
                0 => told(files, oracle, truth, &rotten)?,
                _ => made_up_for(files, oracle, truth, &rotten)?,
            };
            turn(files, oracle, &rotten)?;
            Ok(count)
        };
        seen += judge().with_context(|| format!("rot in stripes {rotten:?}"))?;
    }
    ensure!(seen > 0, "some rot is seen by those who read");
    Ok(())
}

/// Inverts everything that was ever written to these stripes; without redundancy, only data. A second call restores it.
pub(crate) fn turn(files: &[PathBuf], oracle: &Oracle, rotten: &[usize]) -> Result<()> {
    let chunks = oracle.chunks.iter().filter(|chunk| rots(chunk, oracle));
    for (chunk, &stripe) in chunks.flat_map(|chunk| rotten.iter().map(move |stripe| (chunk, stripe))) {
        if stripe < chunk.stripes.len() {
            let file = File::options().read(true).write(true).open(&files[member(chunk, stripe)])?;
            let start = chunk.stripes[stripe].offset;
            invert(&file, start, start + chunk.stripe_bytes())?;
        }
    }
    Ok(())
}

fn rots(chunk: &Chunk, oracle: &Oracle) -> bool {
    oracle.borne() > 0 || chunk.flags.contains(BlockGroupFlags::DATA)
}

fn invert(file: &File, start: u64, end: u64) -> Result<()> {
    let mut at = start;
    while let Some(from) = seek_data(file, at)?.filter(|&from| from < end) {
        at = seek_hole(file, from)?.map_or(end, |hole| hole.min(end));
        let mut bytes = vec![0; usize::try_from(at - from)?];
        file.read_exact_at(&mut bytes, from)?;
        let sectors = bytes.chunks_mut(SUPERBLOCK_LEN).zip((from..).step_by(SUPERBLOCK_LEN));
        for (sector, place) in sectors.filter(|(_, place)| !SUPERBLOCK_OFFSETS.contains(place)) {
            // Not every byte, because rot is not a hole.
            sector.iter_mut().step_by(7).for_each(|byte| *byte = !*byte);
            ensure!(place.is_multiple_of(SECTOR), "files have holes in pages");
        }
        file.write_all_at(&bytes, from)?;
    }
    Ok(())
}

/// Checks that data with checksums is correct, and data without them is read as stored. Returns the number of changed files.
fn made_up_for(files: &[PathBuf], oracle: &Oracle, truth: &Seen, rotten: &[usize]) -> Result<usize> {
    let fs = Image::open(&files[0]).context("the profile bears the rot")?;
    let mut want = truth.copy();
    let mut seen = 0;
    for (path, _) in truth.files().filter(|(path, _)| is_nocow(path)) {
        let content = as_it_lies(files, oracle, truth, path)?;
        seen += usize::from(truth.content(path) != Some(&content));
        want = want.with_content(path, content)?;
    }
    expect_same("what was planted", &want, &Seen::by_us(&fs)?)?;
    let counted = fs.statistics().volume;
    if oracle.parity() > 0 {
        ensure!(
            counted.parity_read_bytes > 0 && counted.rebuilt_bytes > 0,
            "rebuilt from parity: {counted:?}"
        );
    } else {
        // The first copy is read first.
        ensure!(
            (counted.mirror_fallbacks > 0) == rotten.iter().any(|stripe| stripe % copies(oracle) == 0),
            "{counted:?}"
        );
    }
    fs.close()?;
    if oracle.parity() == 0 {
        told_of_each_copy(files)?;
    }
    Ok(seen)
}

/// Checks that the check reports each rotten copy, at any place: of data, and of tree blocks.
fn told_of_each_copy(files: &[PathBuf]) -> Result<()> {
    let report = checked(files)?;
    let found = |number| report.findings.iter().any(|finding| finding.number == number);
    ensure!(report.is_clean(), "nothing is lost: {:#?}", report.findings);
    ensure!(found(BLOCK_COPY) && found(DATA_COPY), "rot in a copy: {:#?}", report.findings);
    Ok(())
}

/// The number of stripes with equal content.
fn copies(oracle: &Oracle) -> usize {
    let ten = oracle.data_chunks().any(|chunk| chunk.flags.contains(BlockGroupFlags::RAID10));
    if ten { 2 } else { oracle.stripes_max() }
}

/// Files without checksums, also in the snapshot.
pub(crate) fn is_nocow(path: &Path) -> bool {
    path.ends_with("nocow")
}

/// The content of a file as its first copy is stored on the members.
fn as_it_lies(files: &[PathBuf], oracle: &Oracle, truth: &Seen, path: &Path) -> Result<Vec<u8>> {
    let mut content = truth.content(path).context("it was read")?.to_vec();
    for extent in extents(files, path)? {
        for (at, logical) in sectors(&extent) {
            let spot = oracle.spot(logical)?;
            let bytes = read_sector(&files[spot.member], spot.offset)?;
            let at = usize::try_from(at)?;
            let end = content.len().min(at + bytes.len());
            content[at..end].copy_from_slice(&bytes[..end - at]);
        }
    }
    Ok(content)
}

/// Checks a set without redundancy: rotten data cannot be read, and everything else is correct. Returns the number of files that cannot be
/// read.
fn told(files: &[PathBuf], oracle: &Oracle, truth: &Seen, rotten: &[usize]) -> Result<usize> {
    let fs = Image::open(&files[0]).context("trees are whole")?;
    let seen = Seen::by_us(&fs)?;
    fs.close()?;
    let (mut good, mut bad) = (0, 0);
    for (path, content) in truth.files().filter(|(path, _)| !is_nocow(path)) {
        let (mut is_rotten, mut is_known) = (false, true);
        for extent in extents(files, path)? {
            is_known &= !extent.flags.contains(FiemapFlags::ENCODED);
            for (_, logical) in sectors(&extent).take_while(|_| !extent.flags.contains(FiemapFlags::ENCODED))
            {
                is_rotten |= rotten.contains(&oracle.spot(logical)?.stripe);
            }
        }
        match seen.content(path) {
            None => bad += 1,
            have if have == content && !is_rotten => good += 1,
            Some(_) if is_rotten => bail!("{} is given although it is rotten", path.display()),
            Some(_) => bail!("{} is given as something else", path.display()),
        }
        ensure!(is_rotten || !is_known || seen.content(path).is_some(), "{} is not rotten", path.display());
    }
    ensure!(good > 0 && bad > 0, "{good} files are good and {bad} bad");
    Ok(bad)
}
