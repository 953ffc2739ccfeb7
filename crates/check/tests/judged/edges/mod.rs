//! Every field of a filesystem at the edges of its numbers, one after the other: `check` reports the value soon and without a panic, or
//! the field may have this value, and then btrfs check reports nothing either.
//!
//! Part of the cases run each time. `CREAMERY_EDGES=1` runs all of them, `CREAMERY_EDGES=n` one in n.

mod free;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, ensure};
use creamery_base::panics::catch;
use creamery_base::{Logical, TreeId};
use creamery_check::{CheckOptions, NoProgress, check};
use creamery_codec::ChecksumType;
use creamery_device::{Access, BlockDevice, FileDevice, MemoryDevice};
use creamery_edges::{Edge, edges_of};
use creamery_format::{SUPERBLOCK_LEN, SUPERBLOCK_OFFSETS, seal};
use creamery_testkit::harness::Case;
use creamery_testkit::{HANG, btrfs_check, ends_within, one_in};
use creamery_volume::{Mode, Volume};

use self::free::is_free;
use crate::image::Image;
use crate::shapes::{self, Shape};

/// One of this many cases runs, unless `CREAMERY_EDGES` asks for another share.
const SHARE: usize = 61;
const WORKERS: usize = 2;
/// The number of images for btrfs check, of those without a finding of ours.
const JUDGED: usize = 8;
/// The trees whose blocks are edited. One subvolume is enough for all.
const TREES: [u64; 11] = [1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 256];
/// Offset of a superblock's own address.
const ADDRESS: usize = 48;
/// Offset of a superblock's generation.
const GENERATION: usize = 72;

pub(crate) fn cases() -> Vec<Case> {
    vec![Case::new("edges/every-field", &shapes::NEEDS, |bench| {
        let image = shapes::make(&bench.scratch, &Shape::quotas(&["-O", "quota", "-n", "4096"]))?;
        let matrix = Matrix::of(&image)?;
        let share = one_in(SHARE);
        let seen = matrix.look(share)?;
        let wrong: Vec<String> =
            seen.iter().filter(|edge| !is_free(edge, matrix.newest())).map(ToString::to_string).collect();
        let mut complaints = Vec::new();
        for edge in sample(&seen, share) {
            let judged = matrix.btrfs(&image, edge);
            complaints.extend(judged.err().map(|error| format!("{edge}: {error:#}")));
        }
        let (no_finding, others) = (wrong.join("\n"), complaints.join("\n"));
        ensure!(
            wrong.is_empty() && complaints.is_empty(),
            "{} cases without a finding:\n{no_finding}\n{} that only others find:\n{others}",
            wrong.len(),
            complaints.len()
        );
        Ok(())
    })]
}

/// A tree block, and the places of its copies on the device.
struct Block {
    bytes: Vec<u8>,
    places: Vec<u64>,
}

struct Matrix {
    device: MemoryDevice,
    checksum: ChecksumType,
    superblock: Vec<u8>,
    blocks: Vec<Block>,
    edges: Vec<Edge>,
}

impl Matrix {
    fn of(path: &Path) -> Result<Self> {
        let image = Image::open(path)?;
        let mut addresses = Vec::<Logical>::new();
        for tree in TREES {
            // Trees that this filesystem lacks have no blocks.
            addresses.extend(image.blocks(TreeId::new(tree)).unwrap_or_default());
        }
        addresses.sort_unstable();
        addresses.dedup();
        let block = |at: &Logical| {
            let bytes = image.block(*at)?;
            Ok(Block { places: image.places(*at, bytes.len())?, bytes })
        };
        let blocks = addresses.iter().map(block).collect::<Result<Vec<_>>>()?;
        let device = MemoryDevice::copy_of(&FileDevice::open(path, Access::ReadOnly)?)?;
        let mut superblock = vec![0; SUPERBLOCK_LEN];
        device.read_at(SUPERBLOCK_OFFSETS[0], &mut superblock)?;
        let bytes: Vec<&[u8]> = blocks.iter().map(|block| &block.bytes[..]).collect();
        let edges = edges_of(&superblock, &bytes);
        Ok(Self { device, checksum: image.volume.checksum_type(), superblock, blocks, edges })
    }

    /// Writes the block or superblock of `edge` after `edit` has changed it.
    fn write(&self, device: &dyn BlockDevice, edge: &Edge, edit: impl Fn(&mut [u8])) -> Result<()> {
        if let Some(number) = edge.block {
            let Block { bytes, places } = &self.blocks[number];
            let mut bytes = bytes.clone();
            edit(&mut bytes);
            seal(&mut bytes, self.checksum);
            return places.iter().try_for_each(|at| Ok(device.write_at(*at, &bytes)?));
        }
        for at in SUPERBLOCK_OFFSETS.into_iter().filter(|at| at + SUPERBLOCK_LEN as u64 <= device.len()) {
            let mut bytes = self.superblock.clone();
            bytes[ADDRESS..ADDRESS + 8].copy_from_slice(&at.to_le_bytes());
            edit(&mut bytes);
            seal(&mut bytes, self.checksum);
            device.write_at(at, &bytes)?;
        }
        Ok(())
    }

    /// The generation of the superblock.
    fn newest(&self) -> u64 {
        u64::from_le_bytes(self.superblock[GENERATION..GENERATION + 8].try_into().expect("eight bytes"))
    }

    /// Runs btrfs check on the image with this number at its edge. Linux does not mount it: mounting some of these hangs for ever.
    fn btrfs(&self, image: &Path, edge: &Edge) -> Result<()> {
        self.write(&FileDevice::open(image, Access::ReadWrite)?, edge, |bytes| edge.set(bytes))?;
        let said = btrfs_check(image);
        self.write(&FileDevice::open(image, Access::ReadWrite)?, edge, |_| ())?;
        said
    }

    /// Checks one case in `share`; returns the cases without a finding.
    fn look(&self, share: usize) -> Result<Vec<&Edge>> {
        let chosen: Vec<&Edge> = self.edges.iter().step_by(share).collect();
        println!("{} of {} cases", chosen.len(), self.edges.len());
        let next = AtomicUsize::new(0);
        let work = || {
            let device = Arc::new(MemoryDevice::copy_of(&self.device)?);
            ensure!(!finds(&device)?, "findings without damage");
            let mut seen = Vec::new();
            while let Some(edge) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
                self.write(device.as_ref(), edge, |bytes| edge.set(bytes))?;
                if !finds(&device).with_context(|| edge.to_string())? {
                    seen.push(*edge);
                }
                self.write(device.as_ref(), edge, |_| ())?;
            }
            Ok(seen)
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(work)).collect();
            let seen = workers.into_iter().map(|worker| worker.join().expect("panics are caught"));
            Ok(seen.collect::<Result<Vec<_>>>()?.concat())
        })
    }
}

/// One case of each field, or as many as there is time for.
fn sample<'m>(seen: &[&'m Edge], share: usize) -> Vec<&'m Edge> {
    let mut fields = HashMap::new();
    for edge in seen {
        fields.insert((edge.part.clone(), edge.field.clone()), *edge);
    }
    let most = if share < SHARE { usize::MAX } else { JUDGED };
    fields.into_values().take(most).collect()
}

/// Whether the check has a finding. An image that cannot be opened counts as one.
fn finds(device: &Arc<MemoryDevice>) -> Result<bool> {
    let device: Arc<dyn BlockDevice> = Arc::<MemoryDevice>::clone(device);
    let work = || {
        catch(|| {
            let Ok(volume) = Volume::open(vec![device], Mode::ReadOnly) else { return true };
            let options = CheckOptions { check_data_csum: true, threads: 1, ..CheckOptions::default() };
            check(&volume, &options, &NoProgress).map_or(true, |report| !report.findings.is_empty())
        })
    };
    let outcome = ends_within(HANG, work).context("it hangs")?;
    outcome.expect("panics are caught").map_err(|panic| anyhow::anyhow!("{panic}"))
}
