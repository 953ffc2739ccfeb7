//! Images made by the kernel, with something of everything in them.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use creamery_testkit::{Judge, LoopDevice, LoopMount, Run, Scratch};

/// The judges that making an image needs.
pub(crate) const NEEDS: [Judge; 4] = [Judge::Root, Judge::KernelBtrfs, Judge::LoopDevices, Judge::BtrfsProgs];

/// Small enough to be copied for every kind of damage. The two names for `touch` have one hash. The pair comes after the snapshots, so that
/// its extents have two references of their own, whenever the kernel commits meanwhile.
const FILL: &str = r#"
set -e
mkdir d e
for i in $(seq 1 400); do echo "content $i" > d/file-with-a-name-$i; done
for i in $(seq 1 150); do ln d/file-with-a-name-1 e/a-hard-link-with-a-rather-long-name-to-fill-$i; done
head -c 3000000 /dev/urandom > big
sync -f .
for i in $(seq 1 120); do head -c 4096 /dev/urandom | dd of=frag bs=4k seek=$((i*2)) conv=notrunc status=none; done
cp --reflink=always big clone
head -c 12288 /dev/urandom | dd of=clone bs=4k seek=100 conv=notrunc status=none
truncate -s 5M sparse
fallocate -l 1M pre
head -c 8192 /dev/urandom | dd of=pre bs=4k seek=10 conv=notrunc status=none
touch nocow; chattr +C nocow; head -c 200000 /dev/urandom > nocow
ln -s target symlink; mkfifo fifo; mknod device c 1 3; setfattr -n user.x -v y big 2>/dev/null || true
btrfs -q subvolume create sub
for i in $(seq 1 150); do head -c $((i*97)) /dev/urandom > sub/f$i; done
btrfs -q subvolume create sub/nested; echo x > sub/nested/y
btrfs -q subvolume snapshot . snap1
btrfs -q subvolume snapshot sub snap2
rm d/file-with-a-name-3*; echo new > snap2/f7; echo y >> snap1/big
btrfs -q subvolume snapshot snap1 snap3
touch d/tamblxmc d/pjrhmdny
rm snap3/clone; rm -f snap1/e/*-2*; fallocate -p -o 40960 -l 81920 big
btrfs -q subvolume delete -c snap2 >/dev/null
head -c 65536 /dev/urandom > pair; cp --reflink=always pair twin
sync -f .
"#;

/// The recipe of an image.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    /// Options of mkfs.btrfs.
    pub(crate) mkfs: &'static [&'static str],
    /// Options of the mount.
    pub(crate) mount: &'static str,
    /// A script that runs after the filling.
    pub(crate) more: &'static str,
    /// Whether the image is the state while it is mounted, not the one after unmounting.
    running: bool,
    pub(crate) len: u64,
}

impl Shape {
    pub(crate) const fn new(mkfs: &'static [&'static str], mount: &'static str) -> Self {
        Self { mkfs, mount, more: "", running: false, len: 300 << 20 }
    }

    /// The state that a power cut leaves: an open file and an open directory are removed, and another file is synced after the last commit.
    pub(crate) const fn running() -> Self {
        let more = "mkdir gone; head -c 100000 /dev/urandom > held; exec 3< gone 4< held; rmdir gone; rm held; sync -f .
            head -c 50000 /dev/urandom > synced; sync synced; cp --sparse=always \"$IMAGE\" \"$IMAGE.running\"";
        Self { more, running: true, ..Self::new(&[], "") }
    }

    /// With quotas of this kind, counted, and a group that has two members.
    pub(crate) const fn quotas(mkfs: &'static [&'static str]) -> Self {
        let more =
            "btrfs qgroup create 1/0 . && btrfs qgroup assign --no-rescan 0/256 1/0 . 2>/dev/null || true
            btrfs qgroup assign --no-rescan 0/257 1/0 . 2>/dev/null || true
            btrfs quota rescan -w . >/dev/null 2>&1 || true; sync -f .; echo x > late; sync -f .";
        Self { more, ..Self::new(mkfs, "") }
    }

    /// Relocated twice with snapshots, and changed meanwhile.
    pub(crate) const fn balanced() -> Self {
        let more = "set -e; btrfs -q balance start --full-balance . >/dev/null; echo x >> snap1/big; rm e/*-1*; sync -f .
            btrfs -q subvolume snapshot . snap4; btrfs -q balance start --full-balance . >/dev/null; echo y >> sub/f9; sync -f .";
        Self { more, len: 1 << 30, ..Self::new(&["-n", "4096"], "") }
    }

    /// With another default subvolume, data that was compressed without a flag for it, and a clone of preallocated data, one side of which
    /// is written then.
    pub(crate) const fn default_subvolume() -> Self {
        let more = "set -e; btrfs -q subvolume set-default 256 .; mount -o remount,compress-force=lzo .
            yes hello | head -c 2000000 > packed; fallocate -l 1M allocated; cp --reflink=always allocated cloned
            head -c 65536 /dev/urandom | dd of=allocated bs=4k seek=7 conv=notrunc status=none; sync -f .";
        Self { more, ..Self::new(&[], "") }
    }

    /// With the old free space cache; Linux writes none for block groups below 100 MiB.
    pub(crate) const fn old_cache() -> Self {
        let shape = Self::new(&["-O", "^free-space-tree"], "space_cache=v1");
        Self {
            more: "head -c 2000000 /dev/urandom > late; sync -f .; rm late; sync -f .",
            len: 12 << 30,
            ..shape
        }
    }
}

/// An image of this shape, filled and unmounted.
pub(crate) fn make(scratch: &Scratch, shape: &Shape) -> Result<PathBuf> {
    let image = scratch.file("made.img");
    let file = std::fs::File::create(&image)?;
    file.set_len(shape.len)?;
    drop(file);
    Run::new("mkfs.btrfs").arg("-q").args(shape.mkfs).arg(&image).ok()?;
    let mut mounted = LoopMount::mount(&image, &scratch.file("mounted"), shape.mount)?;
    for script in [FILL, shape.more] {
        Run::new("bash").args(["-c", script]).env("IMAGE", &image).within(mounted.dir()).ok()?;
    }
    // The kernel reports the old free space cache as old.
    mounted.unmount_and_tell()?;
    if shape.running {
        std::fs::rename(image.with_extension("img.running"), &image)?;
    }
    Ok(image)
}

/// Several devices with this profile for data and metadata, filled, accepted by btrfs check and detached.
pub(crate) fn make_on_devices(scratch: &Scratch, profile: &str, count: usize) -> Result<Vec<PathBuf>> {
    let paths: Vec<PathBuf> = (0..count).map(|number| scratch.file(&format!("{number}.img"))).collect();
    let mut devices = Vec::new();
    for path in &paths {
        std::fs::File::create(path)?.set_len(1 << 30)?;
        devices.push(LoopDevice::attach(path, false)?);
    }
    let names: Vec<&Path> = devices.iter().map(LoopDevice::path).collect();
    Run::new("mkfs.btrfs").args(["-q", "-f", "-d", profile, "-m", profile]).args(&names).ok()?;
    let dir = scratch.dir("mounted")?;
    let others: Vec<String> = names.iter().map(|name| format!("device={}", name.display())).collect();
    Run::new("mount").args(["-t", "btrfs", "-o", &others.join(",")]).arg(names[0]).arg(&dir).ok()?;
    let filled = Run::new("bash").args(["-c", FILL]).within(&dir).ok();
    Run::new("umount").arg(&dir).again_while_busy().ok()?;
    filled?;
    devices.iter().try_for_each(LoopDevice::until_free)?;
    // It searches every device of the host for the others, and reports those that vanish meanwhile.
    let judged = Run::new("btrfs").args(["check", "--check-data-csum"]).arg(names[0]).ok()?;
    ensure!(judged.stdout_text().contains("no error found"), "{judged}");
    devices.into_iter().try_for_each(LoopDevice::detach)?;
    Ok(paths)
}

/// A sparse copy.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<()> {
    Run::new("cp").arg("--sparse=always").arg(from).arg(to).ok().map(drop)
}
