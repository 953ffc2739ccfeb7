//! A command that fails, one that has nothing to do, and a mount that nobody writes to leave every byte of an image as it was,
//! whatever opening would have had to write.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, Judge, LoopMount, Random, Run, btrfs_check, seek_data, seek_hole};

use crate::dup::damage;
use crate::hostile::Victim;
use crate::space_caches::headers;
use crate::subvolumes::orphans;
use crate::support::{MOUNTED, expect_untouched, flip_byte, mkfs_empty};
use crate::tree_log::{LOG_ROOT_AT, superblock_word};

pub(crate) fn cases() -> Vec<Case> {
    let with_caches =
        [Judge::Program, Judge::Root, Judge::Fuse, Judge::KernelBtrfs, Judge::LoopDevices, Judge::BtrfsProgs];
    let mut cases: Vec<Case> =
        KINDS.iter().map(|kind| Case::new(kind.name, &MOUNTED, |bench| leaves_bytes(bench, kind))).collect();
    cases.push(Case::new("untouched/no-label", &[Judge::Program], no_label));
    cases.push(Case::new("untouched/space-caches", &with_caches, space_caches));
    cases
}

/// A kind of image, by what opening it for writing has to do.
struct ImageKind {
    name: &'static str,
    /// Gives it to the image that everything else is in.
    make: fn(&Scene<'_>) -> Result<()>,
}

const KINDS: &[ImageKind] = &[
    ImageKind { name: "untouched/sound", make: |_| Ok(()) },
    ImageKind { name: "untouched/log-waits", make: with_a_log },
    ImageKind {
        name: "untouched/one-copy-bad",
        make: |scene| damage(&scene.image, 0, &["SYSTEM", "METADATA"]),
    },
    ImageKind { name: "untouched/second-superblock-stale", make: with_a_stale_superblock },
    ImageKind {
        name: "untouched/second-superblock-bad",
        make: |scene| flip_byte(&scene.image, SECOND + 300),
    },
    ImageKind { name: "untouched/orphans-wait", make: with_orphans },
    ImageKind { name: "untouched/deleted-subvolume-waits", make: with_a_deleted_subvolume },
    ImageKind { name: "untouched/quotas-uncounted", make: with_a_rescan },
];

/// Where the second superblock lies.
const SECOND: u64 = 64 << 20;
const SUPERBLOCK: usize = 4096;

/// The type of the item that says how quotas stand, where its flags lie in that, and the one that says that a rescan goes on.
const QGROUP_STATUS: u8 = 240;
const STATUS_FLAGS: usize = 16;
const RESCANNING: u8 = 2;

/// A call fails, and says why in `stderr`.
const FAILING: &[&str] = &[
    "rm x.img:/none",
    "rm x.img:/dir",
    "rm -r x.img:/none",
    "rm x.img:/file/below",
    "rm x.img:/snap/f",
    "rm -r x.img:/snap/f",
    "mkdir x.img:/dir",
    "mkdir x.img:/none/new",
    "mkdir x.img:/file/new",
    "mkdir x.img:/snap/new",
    "mkdir -p x.img:/file/new",
    "cp none x.img:/new",
    "cp host x.img:/none/new",
    "cp host x.img:/file/new",
    "cp host x.img:/snap/new",
    "cp hosts x.img:/new",
    "cp x.img:/none x.img:/new",
    "cp -r x.img:/dir x.img:/dir/in",
    "cp --reflink=always x.img:/nocow x.img:/new",
    "cp --reflink=always x.img:/nocow x.img:/file",
    "cp --reflink=always host x.img:/new",
    "mv x.img:/none x.img:/new",
    "mv x.img:/dir x.img:/dir/in/deep",
    "mv x.img:/file x.img:/none/new",
    "mv x.img:/dir x.img:/file",
    "mv x.img:/file x.img:/snap/new",
    "mv x.img:/snap/f x.img:/new",
    "ln x.img:/none x.img:/new",
    "ln x.img:/dir x.img:/new",
    "ln x.img:/file x.img:/dir/in/held",
    "ln x.img:/file x.img:/sub/new",
    "ln -s target x.img:/file",
    "touch x.img:/none/new",
    "touch -d nonsense x.img:/file",
    "touch x.img:/snap/f",
    "chmod 600 x.img:/none",
    "chmod 600 x.img:/snap/f",
    "chown 0 x.img:/none",
    "chown 0 x.img:/snap/f",
    "truncate -s 5 x.img:/dir",
    "truncate -s 5 x.img:/none/new",
    "truncate -s 5 x.img:/snap/f",
    "fallocate -l 4096 x.img:/dir",
    "fallocate -l 4096 x.img:/none/new",
    "fallocate -l 4096 x.img:/snap/f",
    "property set x.img:/none ro true",
    "property set x.img:/dir ro true",
    "property set x.img:/file compression nonsense",
    "property set x.img:/file nonsense a",
    "subvolume create x.img:/dir",
    "subvolume create x.img:/none/new",
    "subvolume create x.img:/snap/new",
    "subvolume delete x.img:/none",
    "subvolume delete x.img:/dir",
    "subvolume delete -i 999 x.img",
    "subvolume snapshot x.img:/none x.img:/new",
    "subvolume snapshot x.img:/dir x.img:/new",
    "subvolume snapshot x.img:/sub x.img:/none/new",
    "subvolume snapshot x.img:/sub x.img:/file",
    "subvolume set-default 999 x.img",
    "subvolume set-default x.img:/dir",
    "qgroup create 9999999/1 x.img",
    "qgroup destroy 1/9 x.img",
    "qgroup assign 0/999 1/9 x.img",
    "qgroup remove 0/999 1/9 x.img",
    "qgroup limit 1M 0/999 x.img",
    "filesystem resize -100G x.img",
    "filesystem resize 5:max x.img",
    "filesystem resize nonsense x.img",
    "filesystem defragment x.img:/none",
    "dedupe x.img:/none",
    "tar -xf none.tar -C x.img:/",
    "tar -xf host -C x.img:/",
    "tune x.img",
    "tune -S 0 x.img",
    "tune -M nonsense x.img",
    "tune -U nonsense x.img",
];

/// A call that has nothing to do, whether it says so or not.
const IDLE: &[&str] = &[
    "rm -f x.img:/none",
    "mkdir -p x.img:/dir/in",
    "tune --convert-to-free-space-tree x.img",
    "tune -r -x -n x.img",
    "property set x.img:/snap ro true",
    "filesystem label x.img",
    "filesystem label x.img kept",
    "device stats -z x.img",
    "subvolume set-default 5 x.img",
    "subvolume set-default x.img:/",
    "filesystem resize 256M x.img",
    "rescue super-recover -v x.img",
    "check x.img",
];

/// What a case works in.
struct Scene<'b> {
    bench: &'b Bench,
    here: PathBuf,
    image: PathBuf,
}

impl Scene<'_> {
    fn new(bench: &Bench) -> Result<Scene<'_>> {
        let here = bench.scratch.dir("here")?;
        let image = here.join("x.img");
        mkfs_empty(bench.creamery(), &["-m", "dup", "-L", "kept"], "256M", &image)?;
        std::fs::write(here.join("host"), Random::new(1).bytes(100_000))?;
        std::fs::create_dir(here.join("hosts"))?;
        let scene = Scene { bench, here, image };
        let mount =
            FuseMount::mount(bench.creamery(), &scene.image, &bench.scratch.file("ours"), "nodatacow")?;
        std::fs::write(mount.dir().join("nocow"), Random::new(2).bytes(100_000))?;
        mount.unmount()?;
        for call in [
            "cp host x.img:/file",
            "mkdir -p x.img:/dir/in",
            "cp host x.img:/dir/in/held",
            "subvolume create x.img:/sub",
            "cp host x.img:/sub/f",
            "subvolume snapshot -r x.img:/sub x.img:/snap",
        ] {
            scene.run(call).ok()?;
        }
        Ok(scene)
    }

    fn run(&self, call: &str) -> Run {
        self.bench.creamery().run(call.split(' ')).within(&self.here)
    }

    /// Takes the image as it is in the midst of what `work` does on a mount of it.
    fn as_power_leaves_it(&self, work: impl FnOnce(&Path) -> Result<Vec<File>>) -> Result<()> {
        let cut = self.here.join("cut.img");
        let mount = FuseMount::mount(
            self.bench.creamery(),
            &self.image,
            &self.bench.scratch.file("ours"),
            "commit=300,noatime",
        )?;
        let open = work(mount.dir())?;
        Run::new("cp").arg("--sparse=always").args([&self.image, &cut]).ok()?;
        drop(open);
        mount.unmount()?;
        Ok(std::fs::rename(cut, &self.image)?)
    }
}

fn with_a_log(scene: &Scene<'_>) -> Result<()> {
    scene.as_power_leaves_it(|dir| {
        let file = File::options().write(true).open(dir.join("file"))?;
        file.write_all_at(b"as synced", 0)?;
        file.sync_all()?;
        Ok(vec![file])
    })?;
    ensure!(superblock_word(&scene.image, LOG_ROOT_AT)? != 0, "an fsync left no log");
    Ok(())
}

fn with_a_stale_superblock(scene: &Scene<'_>) -> Result<()> {
    let mut old = vec![0; SUPERBLOCK];
    let file = File::options().read(true).write(true).open(&scene.image)?;
    file.read_exact_at(&mut old, SECOND)?;
    scene.run("mkdir x.img:/later").ok()?;
    Ok(file.write_all_at(&old, SECOND)?)
}

fn with_orphans(scene: &Scene<'_>) -> Result<()> {
    scene.run("cp host x.img:/goes").ok()?;
    scene.as_power_leaves_it(|dir| {
        let file = File::open(dir.join("goes"))?;
        std::fs::remove_file(dir.join("goes"))?;
        scene.bench.creamery().run(["sync"]).arg(dir).ok()?;
        Ok(vec![file])
    })?;
    let said = Run::new("btrfs").args(["inspect-internal", "dump-tree", "-t", "5"]).arg(&scene.image).ok()?;
    ensure!(said.stdout_text().contains("key (ORPHAN ORPHAN_ITEM"), "no file waits for being deleted");
    Ok(())
}

fn with_a_deleted_subvolume(scene: &Scene<'_>) -> Result<()> {
    scene.run("subvolume create x.img:/goes").ok()?;
    scene.run("cp host x.img:/goes/f").ok()?;
    scene.as_power_leaves_it(|dir| {
        let file = File::open(dir.join("goes/f"))?;
        scene.bench.creamery().run(["subvolume", "delete"]).arg(dir.join("goes")).ok()?;
        scene.bench.creamery().run(["sync"]).arg(dir).ok()?;
        Ok(vec![file])
    })?;
    ensure!(orphans(&scene.image)? == 1, "nothing waits for being dropped");
    Ok(())
}

fn with_a_rescan(scene: &Scene<'_>) -> Result<()> {
    scene.run("quota enable x.img").ok()?;
    let mut victim = Victim::new(scene.image.clone())?;
    let edited = victim.edit(QGROUP_STATUS, &mut |_, status| {
        status[STATUS_FLAGS] |= RESCANNING;
        true
    })?;
    ensure!(edited > 0, "the quota tree has no status item");
    let said = scene.run("quota rescan -s x.img").ok()?.stdout_text();
    ensure!(said.contains("running"), "no rescan waits: {said}");
    Ok(())
}

/// The length of a file, and its blocks that are not all zeros.
type Written = (u64, Vec<(u64, Vec<u8>)>);

/// What is in a file but for zeros, by where it lies, and its length.
fn written(path: &Path) -> Result<Written> {
    const BLOCK: usize = 4096;
    let file = File::open(path)?;
    let (len, mut at, mut found) = (file.metadata()?.len(), 0, Vec::new());
    while let Some(data) = seek_data(&file, at)? {
        at = seek_hole(&file, data)?.unwrap_or(len);
        let mut bytes = vec![0; usize::try_from(at - data)?];
        file.read_exact_at(&mut bytes, data)?;
        let blocks = bytes.chunks(BLOCK).zip((data..).step_by(BLOCK));
        let blocks = blocks.filter(|(block, _)| block.iter().any(|byte| *byte != 0));
        found.extend(blocks.map(|(block, at)| (at, block.to_vec())));
    }
    Ok((len, found))
}

/// Runs all calls on one kind of image.
fn leaves_bytes(bench: &Bench, kind: &ImageKind) -> Result<()> {
    let scene = Scene::new(bench)?;
    (kind.make)(&scene).with_context(|| format!("making {}", kind.name))?;
    let before = written(&scene.image)?;
    let kept = scene.here.join("kept.img");
    Run::new("cp").arg("--sparse=always").args([&scene.image, &kept]).ok()?;
    let mut wrong = Vec::new();
    let mut look = |what: &str| -> Result<()> {
        if written(&scene.image)? != before {
            wrong.push(format!("{what}: has written"));
            Run::new("cp").arg("--sparse=always").args([&kept, &scene.image]).ok()?;
        }
        Ok(())
    };
    let mut succeeded = Vec::new();
    for call in FAILING {
        let finished = scene.run(call).output()?;
        if !matches!(finished.code, Some(1 | 2)) {
            succeeded.push(format!("{call}: should fail: {finished}"));
        }
        look(call)?;
    }
    for call in IDLE {
        let finished = scene.run(call).output()?;
        ensure!(!matches!(finished.code, None | Some(101)), "{finished}");
        look(call)?;
    }
    let mount = FuseMount::mount(bench.creamery(), &scene.image, &bench.scratch.file("ours"), "noatime")?;
    Run::new("ls").arg("-lR").arg(mount.dir()).ok()?;
    std::fs::read(mount.dir().join("file"))?;
    ensure!(std::fs::remove_file(mount.dir().join("none")).is_err());
    ensure!(std::fs::create_dir(mount.dir().join("dir")).is_err());
    bench.creamery().run(["sync"]).arg(mount.dir()).ok()?;
    mount.unmount()?;
    look("a mount that nobody writes to")?;
    wrong.extend(succeeded);
    ensure!(wrong.is_empty(), "{}: {} of the calls:\n{}", kind.name, wrong.len(), wrong.join("\n"));
    // What waited is done with the first change.
    scene.run("mkdir x.img:/changed").ok()?;
    ensure!(written(&scene.image)? != before, "{}: a change has written nothing", kind.name);
    // A rescan that waited counts to its end, from nothing.
    if kind.name == "untouched/quotas-uncounted" {
        scene.run("quota rescan -W x.img").ok()?;
    }
    // It passes over bad copies of blocks that nothing has read.
    Run::new("btrfs").args(["check", "--check-data-csum"]).arg(&scene.image).ok().map(drop)
}

/// The empty label where there is none is the label that there is.
fn no_label(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("x.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    expect_untouched(&image, || {
        bench.creamery().run(["filesystem", "label"]).arg(&image).arg("").ok().map(drop)
    })
}

/// Caches of free space that Linux keeps are there until somebody changes something.
fn space_caches(bench: &Bench) -> Result<()> {
    const BYTES: u64 = 4 << 30;
    let image = bench.scratch.file("x.img");
    File::create_new(&image)?.set_len(BYTES)?;
    Run::new("mkfs.btrfs").args(["-q", "-O", "^free-space-tree,^block-group-tree"]).arg(&image).ok()?;
    let kernel = LoopMount::mount(&image, &bench.scratch.file("kernel"), "space_cache=v1")?;
    std::fs::write(kernel.dir().join("file"), Random::new(1).bytes(64 << 20))?;
    kernel.unmount()?;
    ensure!(headers(&image)? > 0, "there are caches to begin with");
    let run = |words: &[&str]| bench.creamery().run(words);
    expect_untouched(&image, || {
        let removed = run(&["rm"]).arg(crate::support::inside(&image, "/none")).output()?;
        ensure!(removed.code == Some(1), "{removed}");
        let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("ours"), "noatime")?;
        std::fs::read(mount.dir().join("file"))?;
        mount.unmount()
    })?;
    ensure!(headers(&image)? > 0, "they were removed");
    run(&["mkdir"]).arg(crate::support::inside(&image, "/new")).ok()?;
    ensure!(headers(&image)? == 0, "caches are left");
    btrfs_check(&image)
}
