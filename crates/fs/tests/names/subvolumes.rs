//! Subvolumes, ours and the kernel's.

use std::ops::ControlFlow;

use anyhow::{Result, ensure};
use creamery_base::{ErrorKind, ObjectId, TreeId, Wait};
use creamery_fs::{InodeFlags, NewInode, RenameMode, SetAttributes};
use creamery_testkit::Judge::{BtrfsProgs, KernelBtrfs, LoopDevices, Root};
use creamery_testkit::Run;
use creamery_testkit::harness::{Bench, Case};

use crate::support::{ImageFixture, kind};

pub(crate) fn cases() -> Vec<Case> {
    let kernel = &[BtrfsProgs, KernelBtrfs, LoopDevices, Root];
    vec![
        Case::new("subvolumes/ours_are_the_kernels", kernel, ours),
        Case::new("subvolumes/the_kernels_are_ours", kernel, kernels),
        Case::new("subvolumes/a_read_only_one_refuses_changes", kernel, read_only),
        Case::new("subvolumes/a_marked_one_keeps_its_name", kernel, marked),
    ]
}

fn ours(bench: &Bench) -> Result<()> {
    let mut fs = ImageFixture::new(bench, &[])?;
    let top = fs.top();
    let dir = fs.dir(top, "dir")?;
    let new = NewInode { uid: 5, ..NewInode::directory(0o750) };
    let outer = fs.create_subvolume(dir, b"outer", &new)?;
    let inner = fs.create_subvolume(outer, b"inner", &new)?;
    ensure!(outer.ino == ObjectId::FIRST_FREE && outer.subvolume != inner.subvolume);
    ensure!(fs.find(dir, "outer")? == outer && fs.find(outer, "inner")? == inner);
    ensure!(fs.find(inner, "..")? == outer && fs.find(outer, "..")? == dir && fs.find(top, "..")? == top);
    ensure!(fs.resolve_subvolume(b"dir/outer/inner")? == inner.subvolume);
    ensure!(kind(fs.resolve_subvolume(b"dir")) == Some(ErrorKind::InvalidInput));
    let file = fs.file(inner, "file")?;
    ensure!(file.ino.get() == 257 && file.subvolume == inner.subvolume);
    ensure!(kind(fs.rename(inner, b"file", top, b"x", RenameMode::Replace)) == Some(ErrorKind::CrossDevice));
    ensure!(kind(fs.rmdir(dir, b"outer")) == Some(ErrorKind::DirectoryNotEmpty));
    ensure!(kind(fs.unlink(dir, b"outer")) == Some(ErrorKind::IsADirectory));
    // A subvolume's entry moves within its parent.
    fs.rename(dir, b"outer", top, b"moved", RenameMode::Replace)?;
    fs.rename(top, b"moved", top, b"again", RenameMode::NoReplace)?;
    ensure!(fs.find(top, "again")? == outer && fs.find(outer, "..")? == top);
    fs.set_default_subvolume(inner.subvolume)?;
    fs.with_kernel("rw", |dir| {
        ensure!(dir.join("file").exists(), "the default subvolume is mounted");
        let listed = Run::new("btrfs").args(["subvolume", "list", "-u"]).arg(dir).ok()?.stdout_text();
        ensure!(listed.contains("path again") && listed.contains("path again/inner"), "{listed}");
        Run::new("btrfs").args(["subvolume", "snapshot"]).arg(dir).arg(dir.join("copy")).ok()?;
        Ok(())
    })?;
    ensure!(fs.default_subvolume() == inner.subvolume);
    let copy = fs.find(inner, "copy")?;
    fs.file(copy, "in the snapshot")?;
    ensure!(fs.stat(fs.find(copy, "file")?, Wait::Yes)?.nlink == 1);
    let attributes = fs.stat(outer, Wait::Yes)?;
    ensure!((attributes.uid, attributes.mode) == (5, 0o040_750));
    fs.judge()
}

fn kernels(bench: &Bench) -> Result<()> {
    let mut fs = ImageFixture::new(bench, &[])?;
    fs.with_kernel("rw", |dir| {
        let btrfs = |words: &[&str]| Run::new("btrfs").args(words.iter().copied()).ok().map(drop);
        let at = |name: &str| dir.join(name).display().to_string();
        btrfs(&["subvolume", "create", &at("a")])?;
        btrfs(&["subvolume", "create", &at("a/nested")])?;
        std::fs::write(dir.join("a/file"), b"shared")?;
        std::fs::create_dir(dir.join("a/dir"))?;
        btrfs(&["subvolume", "snapshot", &at("a"), &at("snapshot")])?;
        btrfs(&["subvolume", "create", &at("gone")])?;
        btrfs(&["subvolume", "delete", &at("gone")])
    })?;
    let top = fs.top();
    let (a, snapshot) = (fs.find(top, "a")?, fs.find(top, "snapshot")?);
    // The snapshot has the entry of the nested subvolume, but not the subvolume.
    let stub = fs.find(snapshot, "nested")?;
    ensure!(stub.subvolume == snapshot.subvolume && stub.ino == ObjectId::new(2));
    ensure!(fs.names(stub)?.is_empty() && fs.stat(stub, Wait::Yes)?.nlink == 1);
    ensure!(kind(fs.create(stub, b"x", &NewInode::file(0))) == Some(ErrorKind::PermissionDenied));
    ensure!(kind(fs.find(stub, "x")) == Some(ErrorKind::NotFound));
    ensure!(fs.find(a, "nested")?.ino == ObjectId::FIRST_FREE);
    let mut seen = Vec::new();
    fs.read_dir(snapshot, 0, Wait::Yes, &mut |entry| {
        seen.push((entry.name.to_vec(), entry.id));
        ControlFlow::Continue(())
    })?;
    ensure!(seen.iter().any(|(name, id)| name == b"nested" && *id == stub));
    ensure!(seen.iter().any(|(name, id)| name == b".." && *id == top));
    // Shared blocks: what changes in one does not change in the other.
    fs.unlink(snapshot, b"file")?;
    fs.file(fs.find(snapshot, "dir")?, "new")?;
    fs.rename(a, b"file", fs.find(a, "dir")?, b"file", RenameMode::Replace)?;
    fs.with_kernel("ro", |dir| {
        ensure!(std::fs::read(dir.join("a/dir/file"))? == b"shared");
        ensure!(!dir.join("snapshot/file").exists() && dir.join("snapshot/dir/new").exists());
        ensure!(!dir.join("a/dir/new").exists());
        Ok(())
    })?;
    fs.judge()
}

fn read_only(bench: &Bench) -> Result<()> {
    let mut fs = ImageFixture::new(bench, &[])?;
    let top = fs.top();
    let root = fs.create_subvolume(top, b"frozen", &NewInode::directory(0o755))?;
    let file = fs.file(root, "file")?;
    let open = fs.open_file(file)?;
    fs.set_subvolume_read_only(root.subvolume, true)?;
    let frozen = Some(ErrorKind::ReadOnly);
    ensure!(kind(fs.create(root, b"x", &NewInode::file(0))) == frozen);
    ensure!(kind(fs.unlink(root, b"file")) == frozen);
    ensure!(kind(fs.rename(root, b"file", root, b"x", RenameMode::Replace)) == frozen);
    ensure!(kind(fs.set_attributes(file, &SetAttributes::default())) == frozen);
    ensure!(kind(open.write_at(0, b"x")) == frozen);
    for access in [creamery_fs::Access::Write, creamery_fs::Access::Append] {
        ensure!(kind(fs.open_file_for(file, access)) == frozen);
    }
    ensure!(fs.open_file_for(file, creamery_fs::Access::Read).is_ok());
    ensure!(kind(fs.set_xattr(file, b"user.a", b"", creamery_fs::XattrMode::Any)) == frozen);
    fs.file(top, "elsewhere")?;
    drop(open);
    fs.with_kernel("rw", |dir| {
        ensure!(std::fs::write(dir.join("frozen/x"), b"").is_err());
        Ok(())
    })?;
    ensure!(kind(fs.create(root, b"x", &NewInode::file(0))) == frozen);
    fs.set_subvolume_read_only(root.subvolume, false)?;
    fs.file(root, "thawed")?;
    ensure!(fs.root(TreeId::FS)? == top);
    fs.judge()
}

/// A subvolume whose root is immutable or append-only is not deleted, renamed nor moved.
fn marked(bench: &Bench) -> Result<()> {
    let fs = ImageFixture::new(bench, &[])?;
    let top = fs.top();
    let (dir, new) = (fs.dir(top, "dir")?, NewInode::directory(0o755));
    let other = fs.create_subvolume(top, b"other", &new)?;
    let root = fs.create_subvolume(top, b"marked", &new)?;
    let mark = |flags| {
        let set = SetAttributes { flags: Some(flags), ..SetAttributes::default() };
        fs.set_attributes(root, &set).map(drop)
    };
    for flags in [InodeFlags::IMMUTABLE, InodeFlags::APPEND] {
        mark(flags)?;
        let denied = Some(ErrorKind::PermissionDenied);
        ensure!(kind(fs.check_may_go(root.subvolume)) == denied, "{flags:?}: asked before");
        ensure!(kind(fs.delete_subvolume(top, b"marked")) == denied, "{flags:?}: deleted");
        ensure!(kind(fs.rmdir(top, b"marked")) == denied, "{flags:?}: removed");
        for (to, name) in [(top, &b"renamed"[..]), (dir, b"marked"), (other, b"marked")] {
            ensure!(
                kind(fs.rename(top, b"marked", to, name, RenameMode::Replace)) == denied,
                "{flags:?}: {to:?}"
            );
        }
    }
    mark(InodeFlags::empty())?;
    fs.rename(top, b"marked", dir, b"moved", RenameMode::Replace)?;
    fs.rename(dir, b"moved", other, b"moved", RenameMode::Replace)?;
    fs.delete_subvolume(other, b"moved")?;
    fs.judge()
}
