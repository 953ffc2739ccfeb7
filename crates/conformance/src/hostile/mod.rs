//! Hostile images: whatever an image of 256 MiB holds, readers end within seconds of CPU time, with an answer or with an error,
//! without a panic, and without having changed a byte.
//!
//! Half of the damage wears a right checksum. Tree blocks are found by their looks (filesystem id and checksum), so
//! that nothing of ours decides what is damaged.

pub(crate) mod names;
pub(crate) mod trees;
pub(crate) mod writing;

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{Finished, FuseMount, Random, Run, cpu_of, daemon, tree};

use crate::item_types::DIR_ITEM;
use crate::support::{MOUNTED, crc32c, expect_untouched, inside, mkfs_from};

/// Damaged versions.
const VERSIONS: u64 = 48;
/// CPU time of a command that reads such an image, many times what it takes.
pub(crate) const CPU_MAX: Duration = Duration::from_secs(120);
const IMAGE_LEN: u64 = 256 << 20;
const NODE: usize = 16384;
const SUPERBLOCKS: [u64; 2] = [64 << 10, 64 << 20];
const SUPERBLOCK_LEN: usize = 4096;
/// Offsets in a tree block's header.
const FSID: std::ops::Range<usize> = 32..48;
const ADDRESS: usize = 48;
const OWNER: u64 = 88;
const COUNT: usize = 96;
const LEVEL: usize = 100;
const HEADER_LEN: usize = 101;
const ITEM_LEN: usize = 25;
/// In an item's head: the last part of its key.
const KEY_OFFSET: usize = 9;
const KEY_LEN: usize = 17;

pub(crate) fn cases() -> Vec<Case> {
    vec![Case::new("hostile/readers-of-damaged-images", &MOUNTED, readers).long()]
}

/// An image whose damage is taken back before the next one comes.
pub(crate) struct Victim {
    path: PathBuf,
    file: File,
    /// Where the copies of each tree block lie, by logical address.
    blocks: BTreeMap<u64, Vec<u64>>,
    before: Vec<(u64, Vec<u8>)>,
}

fn source(bench: &Bench) -> Result<PathBuf> {
    let source = bench.scratch.dir("source")?;
    tree::generate(&source, 400, 6_000_000, 5)?;
    let mut deep = source.join("deep");
    for level in 0..40 {
        deep = deep.join(format!("level-{level}"));
    }
    std::fs::create_dir_all(&deep)?;
    std::fs::write(deep.join("bottom"), b"bottom")?;
    std::fs::write(source.join("large"), Random::new(6).bytes(24 << 20))?;
    std::os::unix::fs::symlink("deep/level-0", source.join("link"))?;
    Ok(source)
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn seal(bytes: &mut [u8]) {
    let sum = crc32c(&bytes[32..]);
    bytes[..4].copy_from_slice(&sum.to_le_bytes());
}

impl Victim {
    pub(crate) fn new(path: PathBuf) -> Result<Self> {
        let file = File::options().read(true).write(true).open(&path)?;
        let mut superblock = vec![0; SUPERBLOCK_LEN];
        file.read_exact_at(&mut superblock, SUPERBLOCKS[0])?;
        let mut blocks: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        let mut block = vec![0; NODE];
        for at in (0..IMAGE_LEN).step_by(NODE) {
            file.read_exact_at(&mut block, at)?;
            if block[FSID] == superblock[FSID] && block[..4] == crc32c(&block[32..]).to_le_bytes() {
                blocks.entry(word(&block, ADDRESS)).or_default().push(at);
            }
        }
        ensure!(blocks.len() > 10, "only {} tree blocks were found", blocks.len());
        Ok(Self { path, file, blocks, before: Vec::new() })
    }

    /// Leaves all blocks alone but those of a tree.
    pub(crate) fn keep_blocks_of(&mut self, tree: u64) -> Result<()> {
        let mut owner = [0; 8];
        for (address, copies) in std::mem::take(&mut self.blocks) {
            self.file.read_exact_at(&mut owner, copies[0] + OWNER)?;
            if u64::from_le_bytes(owner) == tree {
                self.blocks.insert(address, copies);
            }
        }
        Ok(())
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        let mut old = vec![0; bytes.len()];
        self.file.read_exact_at(&mut old, at)?;
        self.before.push((at, old));
        Ok(self.file.write_all_at(bytes, at)?)
    }

    pub(crate) fn restore(&mut self) -> Result<()> {
        for (at, old) in std::mem::take(&mut self.before).into_iter().rev() {
            self.file.write_all_at(&old, at)?;
        }
        Ok(())
    }

    /// Fields of one tree block, on all copies, sealed.
    fn damage_block(&mut self, random: &mut Random) -> Result<()> {
        let number = random.below(self.blocks.len() as u64) as usize;
        let copies = self.blocks.values().nth(number).context("a block")?.clone();
        let mut bytes = vec![0; NODE];
        self.file.read_exact_at(&mut bytes, copies[0])?;
        let count = u32::from_le_bytes(bytes[COUNT..COUNT + 4].try_into()?) as usize;
        for _ in 0..=random.below(3) {
            let at = place(&bytes, count, random);
            overwrite(&mut bytes, at, random);
        }
        seal(&mut bytes);
        copies.into_iter().try_for_each(|at| self.write(at, &bytes))
    }

    /// Gives what is called `old` in items of these types another name of as many bytes; tells how many there were. An entry that is
    /// found by the hash of its name gets the new one's: where the directory has other entries, out of order perhaps.
    pub(crate) fn rename(&mut self, kinds: &[u8], old: &[u8], new: &[u8]) -> Result<usize> {
        ensure!(old.len() == new.len(), "items do not grow");
        let mut changed = 0;
        for copies in self.blocks.clone().into_values() {
            let mut bytes = vec![0; NODE];
            self.file.read_exact_at(&mut bytes, copies[0])?;
            let before = changed;
            for Item { kind, head, data } in items(&bytes) {
                // Their names are what such items end with.
                if kinds.contains(&kind) && bytes[data.clone()].ends_with(old) {
                    bytes[data.end - new.len()..data.end].copy_from_slice(new);
                    if kind == DIR_ITEM {
                        let hash = u64::from(tree::name_hash(new));
                        bytes[head + KEY_OFFSET..head + KEY_OFFSET + 8].copy_from_slice(&hash.to_le_bytes());
                    }
                    changed += 1;
                }
            }
            if changed > before {
                seal(&mut bytes);
                copies.into_iter().try_for_each(|at| self.write(at, &bytes))?;
            }
        }
        Ok(changed)
    }

    /// Lets `change` at the key and the data of all items of this type; it tells whether it changed something. How many it did.
    pub(crate) fn edit(
        &mut self,
        wanted: u8,
        change: &mut dyn FnMut(&mut [u8], &mut [u8]) -> bool,
    ) -> Result<usize> {
        let mut changed = 0;
        for copies in self.blocks.clone().into_values() {
            let mut bytes = vec![0; NODE];
            self.file.read_exact_at(&mut bytes, copies[0])?;
            let before = changed;
            for Item { kind, head, data } in items(&bytes) {
                if kind == wanted {
                    let (heads, rest) = bytes.split_at_mut(head + ITEM_LEN);
                    let data = data.start - heads.len()..data.end - heads.len();
                    changed += usize::from(change(&mut heads[head..head + KEY_LEN], &mut rest[data]));
                }
            }
            if changed > before {
                seal(&mut bytes);
                copies.into_iter().try_for_each(|at| self.write(at, &bytes))?;
            }
        }
        Ok(changed)
    }

    /// Takes the first item of this type that `is_wanted` out of each leaf that has one. How many there were.
    pub(crate) fn remove_item(
        &mut self,
        wanted: u8,
        is_wanted: &dyn Fn(&[u8], &[u8]) -> bool,
    ) -> Result<usize> {
        let mut removed = 0;
        for copies in self.blocks.clone().into_values() {
            let mut bytes = vec![0; NODE];
            self.file.read_exact_at(&mut bytes, copies[0])?;
            let found = items(&bytes);
            let Some(slot) = found.iter().position(|Item { kind, head, data }| {
                *kind == wanted && is_wanted(&bytes[*head..head + KEY_LEN], &bytes[data.clone()])
            }) else {
                continue;
            };
            // The data of those behind it lies before its own, and moves up by its length.
            let (len, end) = (found[slot].data.len(), found[slot].data.end);
            let first = found.last().map_or(end, |last| last.data.start);
            bytes.copy_within(first..end - len, first + len);
            let head = |slot: usize| HEADER_LEN + slot * ITEM_LEN;
            bytes.copy_within(head(slot + 1)..head(found.len()), head(slot));
            for moved in slot..found.len() - 1 {
                let at = head(moved) + KEY_LEN;
                let offset = u32::from_le_bytes(bytes[at..at + 4].try_into()?) + u32::try_from(len)?;
                bytes[at..at + 4].copy_from_slice(&offset.to_le_bytes());
            }
            bytes[COUNT..COUNT + 4].copy_from_slice(&u32::try_from(found.len() - 1)?.to_le_bytes());
            seal(&mut bytes);
            copies.into_iter().try_for_each(|at| self.write(at, &bytes))?;
            removed += 1;
        }
        Ok(removed)
    }

    /// Lets `change` at each copy of the superblock.
    pub(crate) fn edit_superblock(&mut self, change: &mut dyn FnMut(&mut [u8])) -> Result<()> {
        for copy in SUPERBLOCKS {
            let mut bytes = vec![0; SUPERBLOCK_LEN];
            self.file.read_exact_at(&mut bytes, copy)?;
            change(&mut bytes);
            bytes[ADDRESS..ADDRESS + 8].copy_from_slice(&copy.to_le_bytes());
            seal(&mut bytes);
            self.write(copy, &bytes)?;
        }
        Ok(())
    }

    fn damage_superblock(&mut self, random: &mut Random) -> Result<()> {
        let at = 32 + random.below(1_000) as usize;
        let mut value = random.clone();
        self.edit_superblock(&mut |bytes| overwrite(bytes, at, &mut value.clone()))?;
        value.next_u64();
        *random = value;
        Ok(())
    }

    /// Noise over some of what is not zero, as a failing disk leaves it.
    fn damage_raw(&mut self, random: &mut Random) -> Result<()> {
        let copies: Vec<u64> = self.blocks.values().flatten().copied().collect();
        for _ in 0..1 + random.below(6) {
            let at = match random.below(8) {
                0 => SUPERBLOCKS[0],
                1 => random.below(IMAGE_LEN / 4096) * 4096,
                _ => copies[random.below(copies.len() as u64) as usize],
            };
            let len = 1 + random.below(200) as usize;
            let noise = random.bytes(len);
            self.write(at + random.below(4096 - 200), &noise)?;
        }
        Ok(())
    }
}

/// An item of a leaf: its type, and where its data lies.
struct Item {
    kind: u8,
    head: usize,
    data: std::ops::Range<usize>,
}

/// The items of a block, none when it is no leaf.
fn items(bytes: &[u8]) -> Vec<Item> {
    let field = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")) as usize;
    let count = if bytes[LEVEL] == 0 { field(COUNT) } else { 0 };
    let item = |slot| {
        let head = HEADER_LEN + slot * ITEM_LEN;
        let start = HEADER_LEN + field(head + 17);
        Item { kind: bytes[head + 8], head, data: start..start + field(head + 21) }
    };
    (0..count).map(item).collect()
}

/// Somewhere in the header, in the items' heads, or in the data of an item.
fn place(bytes: &[u8], count: usize, random: &mut Random) -> usize {
    let heads = HEADER_LEN + count.min((NODE - HEADER_LEN) / ITEM_LEN) * ITEM_LEN;
    match random.below(10) {
        0 => 56 + random.below((HEADER_LEN - 56) as u64) as usize,
        1..4 => HEADER_LEN + random.below((heads - HEADER_LEN).max(1) as u64) as usize,
        _ if bytes[LEVEL] > 0 => {
            HEADER_LEN + random.below((count * 33).clamp(1, NODE - HEADER_LEN) as u64) as usize
        }
        _ => {
            let slot = random.below(count.max(1) as u64) as usize;
            let head = (HEADER_LEN + slot * ITEM_LEN).min(NODE - ITEM_LEN);
            let field = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
            let (offset, size) = (u64::from(field(head + 17)), u64::from(field(head + 21)));
            let at = HEADER_LEN as u64 + offset + random.below(size.max(1));
            at.min(NODE as u64 - 1) as usize
        }
    }
}

fn overwrite(bytes: &mut [u8], at: usize, random: &mut Random) {
    let len = [1, 1, 2, 4, 8][random.below(5) as usize].min(bytes.len() - at);
    let now = bytes[at];
    let telling =
        [0, 1, 0x7f, 0x80, 0xff, now.wrapping_add(1), now ^ 1 << random.below(8), random.next_u64() as u8];
    bytes[at..at + len].fill(telling[random.below(8) as usize]);
}

/// Neither a panic nor a signal, nor more work than such an image is worth.
pub(crate) fn expect_an_end(version: u64, finished: &Finished) -> Result<()> {
    let said = finished.stderr_text();
    let bad = matches!(finished.code, None | Some(101 | 134..)) || said.contains("panicked");
    ensure!(!bad, "version {version}: {finished}");
    ensure!(finished.cpu < CPU_MAX, "version {version}: {:?} of CPU time for {finished}", finished.cpu);
    Ok(())
}

/// Everything that reads. Of what is read, no more than the undamaged image holds is taken: a damaged size can be
/// anything, and its zeros are right.
fn read_all(bench: &Bench, image: &Path, version: u64) -> Result<usize> {
    let program = bench.creamery().path().to_string_lossy().into_owned();
    let shown = image.display();
    let mut refused = 0;
    let commands = [
        format!("'{program}' check '{shown}'"),
        format!("'{program}' check --check-data-csum '{shown}'"),
        format!("'{program}' ls -lR '{shown}:/' | head -c 64M > /dev/null; exit ${{PIPESTATUS[0]}}"),
        format!("'{program}' cat '{shown}:/large' | head -c 64M > /dev/null; exit ${{PIPESTATUS[0]}}"),
        format!("'{program}' inspect-internal dump-tree '{shown}' > /dev/null"),
        format!("'{program}' inspect-internal dump-super -fa '{shown}' > /dev/null"),
    ];
    for command in commands {
        let finished = Run::new("bash").args(["-c", &command]).output()?;
        expect_an_end(version, &finished)?;
        refused += usize::from(finished.code != Some(0));
    }
    let listed = bench.creamery().run(["ls"]).arg(inside(image, "/deep/level-0")).output()?;
    expect_an_end(version, &listed)?;
    Ok(refused)
}

/// A read-only mount, walked and read whole.
fn read_mounted(bench: &Bench, image: &Path, version: u64) -> Result<()> {
    let point = bench.scratch.dir("point")?;
    let try_mount = bench.creamery().run(["mount", "-o", "ro"]).arg(image).arg(&point).output()?;
    expect_an_end(version, &try_mount)?;
    if try_mount.code != Some(0) {
        return Ok(());
    }
    let mount = FuseMount::adopt(bench.creamery(), &point)?;
    let walk =
        "find . -ls > /dev/null; find . -type f -exec head -qc 2M {} + > /dev/null; stat -f . > /dev/null";
    let finished = Run::new("bash").args(["-c", walk]).within(bench.scratch.path()).output()?;
    // Had the server panicked, the mount would be gone.
    ensure!(
        !finished.stderr_text().contains("not connected"),
        "version {version}: the server of the mount has ended: {finished}"
    );
    let taken = cpu_of(daemon(image)?)?;
    ensure!(taken < CPU_MAX, "version {version}: the server of the mount took {taken:?} of CPU time");
    mount.unmount().with_context(|| format!("version {version}"))
}

fn readers(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("victim.img");
    let options = ["-b", "256M", "--csum", "crc32c", "--nodesize", "16k"];
    mkfs_from(bench.creamery(), &options, &source(bench)?, &image)?;
    ensure!(read_all(bench, &image, 0)? == 0, "the undamaged image is refused");
    let mut victim = Victim::new(image)?;
    let mut refusals = 0;
    for version in 1..=VERSIONS {
        let mut random = Random::new(0x4057_11e0 + version);
        match version % 8 {
            0 => victim.damage_superblock(&mut random)?,
            1..6 => (0..2).try_for_each(|_| victim.damage_block(&mut random))?,
            _ => victim.damage_raw(&mut random)?,
        }
        let path = victim.path.clone();
        expect_untouched(&path, || {
            refusals += read_all(bench, &path, version)?;
            if version % 2 == 0 { Ok(()) } else { read_mounted(bench, &path, version) }
        })?;
        victim.restore()?;
    }
    ensure!(refusals > VERSIONS as usize, "only {refusals} refusals: the damage does not reach the readers");
    ensure!(read_all(bench, &victim.path, 0)? == 0, "the image was not restored");
    Ok(())
}
