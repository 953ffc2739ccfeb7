//! Images made by btrfs-progs and the kernel, and a naive reader of them.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use creamery_base::{Logical, TreeId};
use creamery_format::dump::{self, BadBlock, DumpContext, WalkError};
use creamery_format::{BlockRef, Chunk, Corruption, Expected, KeyType, Superblock, verify_block};

/// The offset of the first superblock.
pub(crate) const SUPER: u64 = 65536;

/// Whether btrfs-progs are installed; prints a message if not.
pub(crate) fn has_progs() -> bool {
    let found =
        ["btrfs", "mkfs.btrfs"].iter().all(|tool| Command::new(tool).arg("--version").output().is_ok());
    if !found {
        eprintln!("skipped: no btrfs-progs");
    }
    found
}

/// Whether images can be mounted; prints a message if not.
pub(crate) fn can_mount() -> bool {
    let root = run("id -u", Path::new("/")).trim() == "0";
    let kernel = std::fs::read_to_string("/proc/filesystems").is_ok_and(|list| list.contains("\tbtrfs\n"));
    let loops = Path::new("/dev/loop-control").exists();
    let found = has_progs() && root && kernel && loops;
    if !found {
        eprintln!("skipped: no root, loop devices or btrfs in the kernel");
    }
    found
}

/// Runs a shell command that must succeed. Returns its output.
pub(crate) fn run(command: &str, directory: &Path) -> String {
    let Output { status, stdout, stderr } = Command::new("bash")
        .args(["-e", "-c", command])
        .current_dir(directory)
        .env("TZ", "UTC")
        .env("LC_ALL", "C")
        .output()
        .expect("bash can be started");
    assert!(status.success(), "{command}: {status}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8_lossy(&stdout).into_owned()
}

/// A directory that is removed, with its mount, at the end of the test.
pub(crate) struct Scratch {
    pub(crate) path: PathBuf,
}

impl Scratch {
    pub(crate) fn new(name: &str) -> Self {
        let shm = Path::new("/dev/shm");
        let base = if shm.is_dir() { shm.to_path_buf() } else { std::env::temp_dir() };
        let path = base.join(format!("creamery-format-{}-{name}", std::process::id()));
        std::fs::create_dir_all(path.join("m")).expect("a scratch directory can be made");
        Self { path }
    }

    /// Runs a shell command in the directory.
    pub(crate) fn run(&self, command: &str) -> String {
        run(command, &self.path)
    }

    /// A new sparse image, formatted with these options.
    pub(crate) fn mkfs(&self, name: &str, size: &str, options: &str) -> Image {
        self.run(&format!("truncate -s {size} {name} && mkfs.btrfs -q {options} {name}"));
        self.open(name)
    }

    /// Mounts the image, runs a command in the mount, unmounts.
    pub(crate) fn with_mount(&self, image: &str, options: &str, command: &str) {
        self.run(&format!("mount -o loop,{options} {image} m"));
        run(command, &self.path.join("m"));
        self.run("umount m");
    }

    pub(crate) fn open(&self, name: &str) -> Image {
        Image::open(self.path.join(name))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let mount = self.path.join("m");
        let _ = Command::new("umount").arg("-q").arg(&mount).output();
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// An image of one device.
pub(crate) struct Image {
    pub(crate) path: PathBuf,
    pub(crate) file: File,
    pub(crate) superblock: Superblock,
    /// Logical start, length and device offset of the first copy.
    chunks: Vec<(u64, u64, u64)>,
}

impl Image {
    pub(crate) fn open(path: PathBuf) -> Self {
        let file = File::options().read(true).write(true).open(&path).expect("the image opens");
        let mut bytes = vec![0; 4096];
        file.read_exact_at(&mut bytes, SUPER).expect("the image has a superblock");
        let superblock = Superblock::from_bytes(&bytes, SUPER).expect("the superblock is good");
        let mut image = Self { path, file, superblock, chunks: Vec::new() };
        let system: Vec<_> = image
            .superblock
            .sys_chunks()
            .map(|entry| entry.expect("a good chunk"))
            .map(|(key, chunk)| (key.offset, chunk.head.length.get(), chunk.stripes[0].offset.get()))
            .collect();
        image.chunks = system;
        image.load_chunks();
        image
    }

    fn load_chunks(&mut self) {
        let (root, level, generation) = self.superblock.chunk_root();
        let mut found = Vec::new();
        let mut read = |want: &Expected| -> Result<Vec<u8>, BadBlock<Corruption>> {
            let bytes = self.read(want)?;
            let block = BlockRef::new(&bytes);
            for slot in 0..block.count() {
                if block.is_leaf() && block.key(slot).kind == KeyType::CHUNK_ITEM {
                    let chunk = Chunk::parse(block.data(slot)).expect("a verified chunk");
                    found.push((
                        block.key(slot).offset,
                        chunk.head.length.get(),
                        chunk.stripes[0].offset.get(),
                    ));
                }
            }
            Ok(bytes)
        };
        let walked: Result<(), WalkError<Corruption>> = dump::tree(
            &mut String::new(),
            TreeId::CHUNK,
            (root, level, generation),
            &self.superblock,
            &DumpContext::default(),
            &mut read,
        );
        walked.expect("the chunk tree can be read");
        self.chunks = found;
    }

    /// Returns the place of the first copy of a logical address.
    pub(crate) fn physical(&self, logical: Logical) -> u64 {
        let at = logical.get();
        let (start, _, offset) = self
            .chunks
            .iter()
            .find(|(start, len, _)| (*start..start + len).contains(&at))
            .unwrap_or_else(|| panic!("{logical} is in no chunk"));
        at - start + offset
    }

    /// A tree block, verified.
    pub(crate) fn read(&self, want: &Expected) -> Result<Vec<u8>, Corruption> {
        let mut bytes = vec![0; self.superblock.node_size() as usize];
        self.file.read_exact_at(&mut bytes, self.physical(want.logical)).expect("the image is long enough");
        verify_block(&bytes, want)?;
        Ok(bytes)
    }

    pub(crate) fn context(&self) -> DumpContext {
        DumpContext::of(&self.superblock)
    }

    /// Returns our text of the whole filesystem, without the version line.
    pub(crate) fn our_dump(&self) -> String {
        let mut text = String::new();
        let walked: Result<(), WalkError<Corruption>> =
            dump::filesystem(&mut text, &self.superblock, &self.context(), &mut |want| Ok(self.read(want)?));
        walked.unwrap_or_else(|error| panic!("{}: {error:?}", self.path.display()));
        text
    }

    /// Returns all tree blocks of the filesystem, with their expectations.
    pub(crate) fn blocks(&self) -> Vec<(Expected, Vec<u8>)> {
        let mut blocks = Vec::new();
        let walked: Result<(), WalkError<Corruption>> =
            dump::filesystem(&mut String::new(), &self.superblock, &self.context(), &mut |want| {
                let bytes = self.read(want)?;
                blocks.push((*want, bytes.clone()));
                Ok(bytes)
            });
        walked.unwrap_or_else(|error| panic!("{}: {error:?}", self.path.display()));
        blocks
    }

    /// dump-tree's text, without the version line.
    pub(crate) fn their_dump(&self, options: &str) -> String {
        let text = run(
            &format!("btrfs inspect-internal dump-tree {options} {}", self.path.display()),
            Path::new("/"),
        );
        text.split_once('\n').expect("the version line").1.to_owned()
    }

    /// Asserts that both texts are equal.
    pub(crate) fn compare_trees(&self) {
        assert_equal(&self.our_dump(), &self.their_dump(""), &self.path.display().to_string());
    }

    /// Asserts that both print the superblock equally, short and full.
    pub(crate) fn compare_superblocks(&self) {
        let path = self.path.display().to_string();
        for (option, full) in [("", false), ("-f", true)] {
            let theirs = run(&format!("btrfs inspect-internal dump-super {option} {path}"), Path::new("/"));
            let mut ours = String::new();
            dump::superblock(&mut ours, self.superblock.raw(), SUPER, &path, full)
                .expect("strings take everything");
            assert_equal(&ours, &theirs, &path);
        }
    }
}

/// Fails with the first line that differs and the lines around it.
pub(crate) fn assert_equal(ours: &str, theirs: &str, what: &str) {
    let (our_lines, their_lines): (Vec<_>, Vec<_>) = (ours.lines().collect(), theirs.lines().collect());
    let same = our_lines.iter().zip(&their_lines).take_while(|(ours, theirs)| ours == theirs).count();
    if same == our_lines.len() && same == their_lines.len() {
        assert_eq!(ours, theirs, "{what}");
        return;
    }
    let around = |lines: &[&str]| {
        lines[same.saturating_sub(6).min(lines.len())..(same + 3).min(lines.len())].join("\n")
    };
    panic!(
        "{what}: line {} differs\nours:\n{}\ntheirs:\n{}",
        same + 1,
        around(&our_lines),
        around(&their_lines)
    );
}
