//! A root folder that has nothing but what a package brings, and the work that the program does in it.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use creamery_testkit::walk::{Compare, Walk, expect_same};
use creamery_testkit::{Run, Scratch, btrfs_check};

/// Where chroot(8) is found.
const PATH: &str = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";

/// An empty root folder.
pub(super) struct Bare {
    scratch: Scratch,
}

impl Bare {
    pub(super) fn new(name: &str) -> Result<Self> {
        let bare = Self { scratch: Scratch::new(name)? };
        bare.scratch.dir("root")?;
        Ok(bare)
    }

    pub(super) fn dir(&self) -> PathBuf {
        self.scratch.file("root")
    }

    /// Where `path`, absolute inside, lies outside.
    pub(super) fn outside(&self, path: &str) -> PathBuf {
        self.dir().join(path.trim_start_matches('/'))
    }

    /// A run of `program` with this as its root folder, and no more of the environment than a PATH.
    pub(super) fn run<S: AsRef<OsStr>>(&self, program: &str, words: impl IntoIterator<Item = S>) -> Run {
        let chroot = Run::new("env").args(["-i", PATH, "chroot"]).arg(self.dir());
        chroot.arg(program).args(words)
    }

    /// What the words of `program`, between spaces, print.
    pub(super) fn says(&self, program: &str, words: &str) -> Result<String> {
        self.run(program, words.split_whitespace()).ok().map(|finished| finished.stdout_text())
    }

    /// An image is made of a folder, listed, copied out and checked, all inside; and btrfs-progs accept it. It stays as
    /// `/tried/disk.img`.
    pub(super) fn work(&self, program: &str) -> Result<()> {
        let tree = self.outside("/tried/tree");
        fs::create_dir_all(tree.join("folder/empty"))?;
        fs::write(tree.join("small"), "a few words\n")?;
        fs::write(tree.join("folder/large"), b"0123456789abcdef".repeat(100_000))?;
        symlink("../small", tree.join("folder/link"))?;
        self.says(program, "mkfs -q --rootdir /tried/tree --compress zstd /tried/disk.img")?;
        let listed = self.says(program, "ls /tried/disk.img:/folder")?;
        ensure!(listed == "empty\nlarge\nlink\n", "listed as {listed:?}");
        self.says(program, "cp -a /tried/disk.img:/ /tried/out")?;
        let out = Walk::take(&self.outside("/tried/out"))?;
        expect_same("what came out", &Walk::take(&tree)?, &out, &Compare::default())?;
        self.says(program, "check /tried/disk.img")?;
        btrfs_check(&self.outside("/tried/disk.img"))
    }

    /// All that is below a folder but folders, in order.
    pub(super) fn files_below(&self, folder: &Path) -> Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        let mut waiting = vec![folder.to_owned()];
        while let Some(folder) = waiting.pop() {
            for entry in fs::read_dir(&folder)? {
                let entry = entry?;
                let list = if entry.file_type()?.is_dir() { &mut waiting } else { &mut found };
                list.push(entry.path());
            }
        }
        found.sort();
        Ok(found)
    }
}
