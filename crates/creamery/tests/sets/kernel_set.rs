//! A set of files that the kernel makes and fills, and the kernel's view of its members.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::Bench;
use creamery_testkit::{KernelLog, LoopDevice, Random, Run, create_snapshot, create_subvolume, seed_of};

use crate::SetShape;
use crate::seen::Seen;

/// The smallest size of a member; members are larger by less than [`SIZE_MORE_MIB`]. On smaller ones Linux at times lacks space for its
/// reservations with large nodes.
const SIZE_MIN: u64 = 352 << 20;
const SIZE_MORE_MIB: u64 = 20;

pub(crate) struct KernelSet {
    files: Vec<PathBuf>,
    loops: Vec<LoopDevice>,
    dir: PathBuf,
}

impl KernelSet {
    pub(crate) fn make(bench: &Bench, shape: &SetShape) -> Result<Self> {
        let mut random = Random::new(seed_of(&shape.name()));
        let home = bench.scratch.dir("set")?;
        let files: Vec<PathBuf> =
            (1..=shape.members).map(|number| home.join(format!("m{number}.img"))).collect();
        for file in &files {
            File::create_new(file)?.set_len(SIZE_MIN + (random.below(SIZE_MORE_MIB) << 20))?;
        }
        let mut set = Self { files, loops: Vec::new(), dir: bench.scratch.dir("kernel")? };
        set.attach(false)?;
        Run::new("mkfs.btrfs")
            .args(["-q", "-f", "-m", shape.profile, "-d", shape.profile])
            .args(["--csum", shape.checksum, "-n", &shape.node.to_string()])
            .args(set.nodes(&set.all()))
            .ok()?;
        let packing = ["zstd", "lzo", "zlib"][usize::try_from(random.below(3))?];
        let options = format!("noatime,compress={packing}");
        set.mounted(&set.all(), &options, true, |dir| fill(dir, &mut random).context("filling the set"))?;
        // From here on the kernel may not write.
        set.attach(true)?;
        Ok(set)
    }

    /// Existing files as members, for Linux to write to.
    pub(crate) fn of(bench: &Bench, files: &[PathBuf]) -> Result<Self> {
        let mut set = Self { files: files.to_vec(), loops: Vec::new(), dir: bench.scratch.dir("kernel")? };
        set.attach(false)?;
        Ok(set)
    }

    /// The extents of the extent tree, from btrfs-progs: address and length.
    pub(crate) fn used_extents(&self) -> Result<Vec<(u64, u64)>> {
        let nodes = self.nodes(&self.all());
        Run::new("btrfs").args(["device", "scan"]).args(&nodes).ok()?;
        let dump = |words: &[&str]| -> Result<String> {
            let run = Run::new("btrfs").args(["inspect-internal"]).args(words).arg(&nodes[0]);
            Ok(run.ok()?.stdout_text())
        };
        let superblock = dump(&["dump-super"])?;
        let node = superblock.lines().find_map(|line| line.strip_prefix("nodesize")).context("nodesize")?;
        let node: u64 = node.trim().parse()?;
        let key = |line: &str| -> Option<(u64, u64)> {
            let (_, key) = line.split_once(" key (")?;
            let mut words = key.split(')').next()?.split(' ');
            let (start, kind, offset) = (words.next()?.parse().ok()?, words.next()?, words.next()?);
            match kind {
                "EXTENT_ITEM" => Some((start, offset.parse().ok()?)),
                "METADATA_ITEM" => Some((start, node)),
                _ => None,
            }
        };
        let tree = dump(&["dump-tree", "-t", "extent"])?;
        Ok(tree.lines().filter(|line| line.trim_start().starts_with("item ")).filter_map(key).collect())
    }

    /// Attaches all members again.
    fn attach(&mut self, read_only: bool) -> Result<()> {
        for device in self.loops.drain(..) {
            device.detach()?;
        }
        for file in &self.files {
            self.loops.push(LoopDevice::attach(file, read_only)?);
        }
        Ok(())
    }

    /// The positions of all members.
    pub(crate) fn all(&self) -> Vec<usize> {
        (0..self.files.len()).collect()
    }

    fn nodes(&self, members: &[usize]) -> Vec<PathBuf> {
        members.iter().map(|&member| self.loops[member].path().to_owned()).collect()
    }

    /// The kernel's view of these members, if it mounts them.
    ///
    /// # Errors
    /// The kernel's reason not to mount them; a walk that ends early.
    pub(crate) fn kernel_view(&self, members: &[usize], options: &str) -> Result<Seen> {
        // The kernel complains about missing members.
        let is_whole = members.len() == self.files.len();
        self.mounted(members, options, is_whole, Seen::by_kernel)
    }

    /// The result of `body` on the kernel's mount of these members; for a whole set the kernel must not complain meanwhile.
    pub(crate) fn mounted<T>(
        &self,
        members: &[usize],
        options: &str,
        is_whole: bool,
        body: impl FnOnce(&Path) -> Result<T>,
    ) -> Result<T> {
        // The kernel remembers members by their filesystem: it must not know those that are away.
        let _ = Run::new("btrfs").args(["device", "scan", "--forget"]).args(self.nodes(&self.all())).output();
        let mut log = KernelLog::start()?;
        let nodes = self.nodes(members);
        let named: Vec<String> = nodes.iter().map(|node| format!("device={}", node.display())).collect();
        let options = format!("{options},{}", named.join(","));
        Run::new("mount")
            .args(["-t", "btrfs", "-o", &options])
            .arg(&nodes[0])
            .arg(&self.dir)
            .ok()
            .context("the kernel does not mount it")?;
        let done = body(&self.dir);
        Run::new("umount").arg(&self.dir).again_while_busy().ok()?;
        if is_whole {
            for device in &self.loops {
                let said = log.complaints(&device.name())?;
                ensure!(said.is_empty(), "the kernel logged:\n  {}", said.join("\n  "));
            }
        }
        done
    }

    /// Copies of all members in `dir`.
    pub(crate) fn copy_in(&self, dir: &Path) -> Result<Vec<PathBuf>> {
        Run::new("cp").args(["--sparse=always", "--"]).args(&self.files).arg(dir).ok()?;
        let name = |file: &PathBuf| dir.join(file.file_name().unwrap_or_default());
        Ok(self.files.iter().map(name).collect())
    }

    /// Releases all resources.
    pub(crate) fn end(mut self) -> Result<()> {
        self.loops.drain(..).try_for_each(LoopDevice::detach)
    }
}

/// Makes files of each kind, and enough of them that every member has its share of each row.
fn fill(dir: &Path, random: &mut Random) -> Result<()> {
    for number in 1..=4_usize {
        let len = number * 400_000 + number * 777;
        std::fs::write(dir.join(format!("raw{number}")), random.bytes(len))?;
    }
    let many = dir.join("many");
    std::fs::create_dir(&many)?;
    for number in 0..150_usize {
        std::fs::write(many.join(format!("small{number}")), format!("small {number}"))?;
    }
    for number in 0..30_usize {
        let path = many.join(format!("some{number}"));
        std::fs::write(&path, random.bytes(3000 + number * 97))?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600 + number as u32 % 0o100))?;
    }
    std::fs::write(dir.join("packed"), random.text(700_000))?;
    nocow(dir, random)?;
    let mut hole = File::create_new(dir.join("hole"))?;
    hole.seek(SeekFrom::Start(3 << 20))?;
    hole.write_all(b"behind a hole")?;
    hole.write_all_at(&random.bytes(100_000), 1 << 20)?;
    symlink("many/small7", dir.join("link"))?;
    std::fs::hard_link(dir.join("raw1"), dir.join("raw1-again"))?;
    let open = File::open(dir)?;
    create_subvolume(&open, "below")?;
    std::fs::write(dir.join("below/file"), random.bytes(150_000))?;
    Run::new("btrfs").args(["filesystem", "sync"]).arg(dir).ok()?;
    create_snapshot(&open, "before", &open)?;
    drop(open);
    // The snapshot keeps this data, and the original loses it.
    let raw = File::options().write(true).open(dir.join("raw3"))?;
    raw.write_all_at(&random.bytes(200_000), 300_000)?;
    raw.write_all_at(&random.text(90_000), 900_000)?;
    for number in (0..150).step_by(3) {
        std::fs::remove_file(many.join(format!("small{number}")))?;
    }
    Run::new("btrfs").args(["filesystem", "sync"]).arg(dir).ok().map(drop)
}

/// Writes data without checksums; the name of the file says so.
fn nocow(dir: &Path, random: &mut Random) -> Result<()> {
    let path = dir.join("nocow");
    drop(File::create_new(&path)?);
    Run::new("chattr").arg("+C").arg(&path).ok()?;
    Ok(std::fs::write(&path, random.bytes(600_000))?)
}
