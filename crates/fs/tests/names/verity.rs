//! Files with fs-verity on images: sealed with what `fsverity` makes, since no kernel here can be relied on to seal one.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use creamery_base::{ErrorKind, InodeId, TreeId, Wait};
use creamery_codec::{ChecksumType, checksum};
use creamery_format::{CompatRo, InodeFlags, Key, KeyType, RawInodeItem, RawVerityDescriptorItem};
use creamery_fs::{Access, RenameMode, SetAttributes};
use creamery_testkit::Judge::{self, BtrfsProgs, Fuse, KernelBtrfs, LoopDevices, Program, Root};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, Run, btrfs_check};
use creamery_txn::ReserveItems;
use rustix::io::Errno;
use zerocopy::{FromBytes, IntoBytes};

use crate::support::{ImageFixture, kind, make_image};

const FSVERITY: Judge = Judge::Tool("fsverity");
/// Bytes of a descriptor or a tree that stand in one item, as Linux cuts them.
const PIECE: usize = 2048;
const LEN: usize = 3_000_000;

pub(crate) fn cases() -> Vec<Case> {
    let kernel = &[FSVERITY, BtrfsProgs, KernelBtrfs, LoopDevices, Root];
    vec![
        Case::new("verity/sealed_files_are_read_and_kept", &[FSVERITY, BtrfsProgs], library),
        Case::new("verity/written_in_turn_with_the_kernel", kernel, beside_kernel),
        Case::new("verity/on_a_mount", &[FSVERITY, BtrfsProgs, Fuse, Root, Program], mounted),
    ]
}

/// Seals a file of the top level that has `content`; returns its digest.
fn seal(bench: &Bench, fs: &ImageFixture, name: &str, content: &[u8]) -> Result<String> {
    let [plain, tree, descriptor] = ["plain", "tree", "descriptor"].map(|name| bench.scratch.file(name));
    std::fs::write(&plain, content)?;
    let digest = Run::new("fsverity")
        .args(["digest", "--compact", "--salt=0123"])
        .arg(format!("--out-merkle-tree={}", tree.display()))
        .arg(format!("--out-descriptor={}", descriptor.display()))
        .arg(&plain)
        .ok()?
        .stdout_text();
    let id = fs.find(fs.top(), name)?;
    let descriptor = std::fs::read(&descriptor)?;
    let about = RawVerityDescriptorItem { size: (descriptor.len() as u64).into(), ..Default::default() };
    let mut items = vec![(Key::new(id.ino, KeyType::VERITY_DESC_ITEM, 0), about.as_bytes().to_vec())];
    let sides =
        [(KeyType::VERITY_DESC_ITEM, 1, descriptor), (KeyType::VERITY_MERKLE_ITEM, 0, std::fs::read(&tree)?)];
    for (kind, from, bytes) in sides {
        let keys = (from..).step_by(PIECE).map(|at| Key::new(id.ino, kind, at));
        items.extend(keys.zip(bytes.chunks(PIECE).map(<[u8]>::to_vec)));
    }
    let tree = fs.engine().tree(TreeId::FS)?;
    for (key, bytes) in items {
        let handle = fs.engine().start(ReserveItems::items(1))?;
        tree.insert(&handle, &key, &bytes)?;
        handle.end();
    }
    let handle = fs.engine().start(ReserveItems::items(1))?;
    tree.update(&handle, &Key::new(id.ino, KeyType::INODE_ITEM, 0), |bytes| {
        let inode = RawInodeItem::mut_from_bytes(bytes).expect("an inode item");
        inode.set_flags(inode.flags() | InodeFlags::VERITY);
    })?
    .context("no inode")?;
    handle.end();
    Ok(digest.trim().to_owned())
}

/// Says in the superblocks that there are such files.
fn mark(image: &Path) -> Result<()> {
    let file = File::options().read(true).write(true).open(image)?;
    for at in [64 << 10, 64 << 20] {
        let mut bytes = vec![0; 4096];
        file.read_exact_at(&mut bytes, at)?;
        let raw = creamery_format::RawSuperblock::mut_from_bytes(&mut bytes).expect("a superblock's length");
        raw.compat_ro_flags = (raw.compat_ro_flags.get() | CompatRo::VERITY.bits()).into();
        let sum = checksum(ChecksumType::Crc32c, &bytes[32..]);
        bytes[..4].copy_from_slice(sum.as_bytes(ChecksumType::Crc32c));
        file.write_all_at(&bytes, at)?;
    }
    Ok(())
}

/// The bytes of a file, and the same with one changed in block 500.
fn contents() -> [Vec<u8>; 2] {
    let content: Vec<u8> = (0..LEN).map(|at| (at * 31 + at / 4096) as u8).collect();
    let mut changed = content.clone();
    changed[500 * 4096 + 17] ^= 1;
    [content, changed]
}

/// An image with a file that is as it was sealed, and one that is not; and their digest.
fn image(bench: &Bench) -> Result<(ImageFixture, String)> {
    let image = bench.scratch.file("image");
    make_image(&image, &[])?;
    let [content, changed] = contents();
    let mut fs = ImageFixture::open(bench, image.clone())?;
    let mut digest = String::new();
    for (name, found) in [("good", &content), ("bad", &changed)] {
        let file = fs.open_file(fs.file(fs.top(), name)?)?;
        ensure!(file.write_at(0, found)? == LEN);
        file.sync()?;
        drop(file);
        digest = seal(bench, &fs, name, &content)?;
    }
    fs.sync()?;
    fs.let_go();
    mark(&image)?;
    btrfs_check(&image)?;
    fs.crash()?;
    Ok((fs, digest))
}

fn verity_items(fs: &ImageFixture, id: InodeId) -> Result<usize> {
    let tree = fs.engine().tree(TreeId::FS)?;
    let mut cursor = tree.cursor(&Key::new(id.ino, KeyType::VERITY_DESC_ITEM, 0), Wait::Yes)?;
    let mut count = 0;
    while cursor.item().is_some_and(|(key, _)| {
        key.objectid == id.ino && [KeyType::VERITY_DESC_ITEM, KeyType::VERITY_MERKLE_ITEM].contains(&key.kind)
    }) {
        count += 1;
        cursor.advance()?;
    }
    Ok(count)
}

fn library(bench: &Bench) -> Result<()> {
    let (mut fs, digest) = image(bench)?;
    let [content, _] = contents();
    let [good, bad] = [fs.find(fs.top(), "good")?, fs.find(fs.top(), "bad")?];
    let mut bytes = vec![0; LEN + 1];
    let file = fs.open_file(good)?;
    ensure!(file.read_at(0, &mut bytes, Wait::Yes)? == LEN && bytes[..LEN] == content);
    ensure!(file.verity()?.is_some_and(|info| info.digest.to_string() == digest));
    drop(file);
    let file = fs.open_file(bad)?;
    ensure!(file.read_at(0, &mut bytes[..500 * 4096], Wait::Yes)? == 500 * 4096);
    let refused = file.read_at(500 * 4096, &mut bytes[..1], Wait::Yes).err().context("bad data was read")?;
    ensure!(
        refused.kind() == ErrorKind::Unreadable && refused.to_string().contains("offset 2048000 "),
        "{refused}"
    );
    drop(file);
    for access in [Access::Write, Access::Append] {
        ensure!(kind(fs.open_file_for(good, access)) == Some(ErrorKind::PermissionDenied), "{access:?}");
    }
    // Names and attributes are not sealed; snapshots are.
    fs.set_attributes(good, &SetAttributes { mode: Some(0o400), ..SetAttributes::default() })?;
    fs.rename(fs.top(), b"good", fs.top(), b"moved", RenameMode::Replace)?;
    fs.link(good, fs.top(), b"linked")?;
    fs.unlink(fs.top(), b"moved")?;
    let file = fs.open_file(good)?;
    file.sync()?;
    drop(file);
    fs.crash_and_check()?;
    let file = fs.open_file(fs.find(fs.top(), "linked")?)?;
    ensure!(file.read_at(0, &mut bytes, Wait::Yes)? == LEN && bytes[..LEN] == content);
    drop(file);
    let snapshot = fs.create_snapshot(TreeId::FS, fs.top(), b"snapshot", true)?;
    // What goes takes its items along.
    let before = verity_items(&fs, good)?;
    ensure!(before > 10, "{before} items");
    fs.unlink(fs.top(), b"linked")?;
    fs.clean();
    let file = fs.open_file(fs.lookup(snapshot, b"linked", Wait::Yes)?)?;
    ensure!(file.read_at(0, &mut bytes, Wait::Yes)? == LEN && bytes[..LEN] == content);
    drop(file);
    ensure!(verity_items(&fs, good)? == 0 && verity_items(&fs, bad)? == before);
    fs.judge()
}

/// Whether the kernel has it or not: what is written elsewhere is no harm.
fn beside_kernel(bench: &Bench) -> Result<()> {
    let (mut fs, _) = image(bench)?;
    let [content, _] = contents();
    let read = fs.with_kernel("rw", |dir| {
        std::fs::write(dir.join("other"), "text")?;
        Ok(std::fs::read(dir.join("good")))
    })?;
    // One that has it compares, one that has not knows such a file, and refuses.
    match read {
        Ok(read) => ensure!(read == content),
        Err(error) => ensure!(error.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error()), "{error}"),
    }
    let good = fs.find(fs.top(), "good")?;
    let mut bytes = vec![0; LEN];
    ensure!(fs.open_file(good)?.read_at(0, &mut bytes, Wait::Yes)? == LEN && bytes == content);
    ensure!(fs.find(fs.top(), "other").is_ok());
    fs.judge()
}

fn mounted(bench: &Bench) -> Result<()> {
    let (mut fs, digest) = image(bench)?;
    fs.let_go();
    let [content, changed] = contents();
    let inside = |path: &str| format!("{}:{path}", bench.scratch.file("image").display());
    let told = bench.creamery().run(["stat"]).arg(inside("/good")).ok()?.stdout_text();
    ensure!(told.contains(&format!("Verity: sha256:{digest}\n")), "{told}");
    for dump in ["dump-tree", "dump-super"] {
        let ours = bench.creamery().run(["inspect-internal", dump]).arg(bench.scratch.file("image")).ok()?;
        let theirs =
            Run::new("btrfs").args(["inspect-internal", dump]).arg(bench.scratch.file("image")).ok()?;
        let [ours, theirs] = [ours, theirs].map(|told| told.stdout_text());
        let version = |line: &&str| !line.starts_with("btrfs-progs v");
        ensure!(ours.lines().filter(version).eq(theirs.lines().filter(version)), "{dump}");
    }
    let refused = bench.creamery().run(["cat"]).arg(inside("/bad")).output()?;
    let told = refused.stderr_text();
    ensure!(refused.code == Some(1) && told.contains("offset 2048000 does not match its hash"), "{told}");
    ensure!(changed.starts_with(&refused.stdout) && refused.stdout.len() <= 2_048_000, "bad data was shown");
    let mount =
        FuseMount::mount(bench.creamery(), &bench.scratch.file("image"), &bench.scratch.dir("fuse")?, "")?;
    let [good, bad] = ["good", "bad"].map(|name| mount.dir().join(name));
    ensure!(std::fs::read(&good)? == content);
    let error = std::fs::read(&bad).err().context("bad data was read")?;
    ensure!(error.raw_os_error() == Some(Errno::IO.raw_os_error()), "{error}");
    // What is whole of it is read, by mappings, too.
    let script = "import mmap,os,sys\nf=os.open(sys.argv[1],0)\nm=mmap.mmap(f,0,prot=mmap.PROT_READ)\n\
                  sys.stdout.buffer.write(m[400*4096:401*4096])\n";
    let seen = Run::new("python3").args(["-c", script]).arg(&bad).ok()?;
    ensure!(seen.stdout == changed[400 * 4096..401 * 4096]);
    for options in [File::options().write(true), File::options().append(true)] {
        let error = options.open(&good).err().context("opened for writing")?;
        ensure!(error.raw_os_error() == Some(Errno::PERM.raw_os_error()), "{error}");
    }
    for len in [10, LEN, LEN + 10] {
        let script = "import os,sys\nos.truncate(sys.argv[1],int(sys.argv[2]))";
        let truncated = Run::new("python3").args(["-c", script]).arg(&good).arg(len.to_string()).output()?;
        ensure!(
            truncated.stderr_text().contains("PermissionError: [Errno 1]"),
            "{}",
            truncated.stderr_text()
        );
    }
    ensure!(File::create(&good).is_err_and(|error| error.raw_os_error() == Some(Errno::PERM.raw_os_error())));
    let flags = rustix::fs::ioctl_getflags(File::open(&good)?)?;
    ensure!(flags.bits() & 0x10_0000 != 0, "{flags:?}");
    let measured = Run::new("fsverity").arg("measure").arg(&good).ok()?;
    ensure!(measured.stdout_text().contains(&digest), "{}, want {digest}", measured.stdout_text());
    std::fs::rename(&good, mount.dir().join("moved"))?;
    std::fs::remove_file(mount.dir().join("moved"))?;
    mount.unmount()?;
    btrfs_check(&bench.scratch.file("image"))
}
