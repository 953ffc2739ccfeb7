//! Access control lists, beside the kernel's.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use anyhow::{Result, ensure};
use creamery_base::{ErrorKind, InodeId, Wait};
use creamery_fs::{NewInode, NewKind, SetAttributes, XattrMode};
use creamery_testkit::Judge::{BtrfsProgs, KernelBtrfs, LoopDevices, Root, Tool};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::walk::{Compare, Walk, expect_same};
use creamery_testkit::{LoopMount, btrfs_check};
use rustix::fs::XattrFlags;

use crate::support::{ImageFixture, kind, make_image};

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

pub(crate) fn cases() -> Vec<Case> {
    let kernel = &[BtrfsProgs, KernelBtrfs, LoopDevices, Root, Tool("python3")];
    vec![
        Case::new("acls/lists_and_modes_are_what_the_kernel_makes_of_them", kernel, beside_the_kernel),
        Case::new("acls/what_is_no_list_is_refused", &[BtrfsProgs], refusals),
    ]
}

/// A list: owner, a named user, group, a named group, mask, others; none of the middle three for `None`.
fn list(owner: u16, group: u16, other: u16, named: Option<(u16, u16, u16)>) -> Vec<u8> {
    let mut entries = vec![(1_u16, owner, u32::MAX)];
    entries.extend(named.map(|(user, _, _)| (2, user, 1000)));
    entries.push((4, group, u32::MAX));
    entries.extend(named.map(|(_, group, _)| (8, group, 2000)));
    entries.extend(named.map(|(_, _, mask)| (16, mask, u32::MAX)));
    entries.push((32, other, u32::MAX));
    let mut value = 2_u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        value.extend_from_slice(&tag.to_le_bytes());
        value.extend_from_slice(&perm.to_le_bytes());
        value.extend_from_slice(&id.to_le_bytes());
    }
    value
}

enum AclStep {
    Create(&'static str, u32),
    Mkdir(&'static str, u32),
    Symlink(&'static str),
    Set(&'static str, &'static str, Vec<u8>),
    Remove(&'static str, &'static str),
    Chmod(&'static str, u32),
}

fn steps() -> Vec<AclStep> {
    use AclStep::{Chmod, Create, Mkdir, Remove, Set, Symlink};
    let mut steps = vec![
        Mkdir("d", 0o2750),
        Set("d", DEFAULT, list(7, 5, 0, Some((7, 6, 7)))),
        Create("d/a", 0o666),
        Create("d/b", 0o600),
        Create("d/c", 0o777),
        Mkdir("d/e", 0o777),
        Create("d/e/f", 0o640),
        Mkdir("d/e/g", 0o700),
        Symlink("d/s"),
        Set("d", DEFAULT, list(6, 4, 4, None)),
        Create("d/plain", 0o666),
        Mkdir("d/plain dir", 0o777),
        Remove("d/e", DEFAULT),
        Create("d/e/h", 0o666),
        Create("x", 0o644),
        Set("x", ACCESS, list(6, 6, 0, Some((7, 1, 3)))),
        Create("y", 0o4755),
        Set("y", ACCESS, list(7, 7, 7, Some((0, 0, 0)))),
        Chmod("y", 0o640),
        Create("z", 0o644),
        Set("z", ACCESS, list(7, 1, 2, None)),
        Create("w", 0o644),
        Set("w", ACCESS, list(7, 1, 2, Some((5, 5, 5)))),
        Set("w", ACCESS, list(4, 4, 4, None)),
        Create("v", 0o600),
        Set("v", ACCESS, list(7, 1, 2, Some((5, 5, 5)))),
        Remove("v", ACCESS),
        Remove("v", ACCESS),
        Set("d/a", ACCESS, 2_u32.to_le_bytes().to_vec()),
    ];
    for (name, mode) in [("d/b", 0o777), ("d/c", 0o070), ("x", 0o007), ("z", 0o1777)] {
        steps.push(Chmod(name, mode));
    }
    steps
}

fn ours(fs: &ImageFixture, step: &AclStep) -> Result<()> {
    let find = |path: &str| -> Result<InodeId> {
        Ok(path.split('/').try_fold(fs.top(), |dir, name| fs.find(dir, name))?)
    };
    let make = |path: &str, kind: NewKind<'_>, mode: u32| -> Result<()> {
        let (dir, name) = path
            .rsplit_once('/')
            .map_or((fs.top(), path), |(dir, name)| (find(dir).expect("made before"), name));
        fs.create(dir, name.as_bytes(), &NewInode { kind, mode, umask: 0o027, ..NewInode::file(0) })?;
        Ok(())
    };
    match step {
        AclStep::Create(path, mode) => make(path, NewKind::File, *mode),
        AclStep::Mkdir(path, mode) => make(path, NewKind::Directory, *mode),
        AclStep::Symlink(path) => make(path, NewKind::Symlink(b"target"), 0),
        AclStep::Set(path, name, value) => {
            Ok(fs.set_xattr(find(path)?, name.as_bytes(), value, XattrMode::Any)?)
        }
        AclStep::Remove(path, name) => Ok(fs.remove_xattr(find(path)?, name.as_bytes())?),
        AclStep::Chmod(path, mode) => {
            let set = SetAttributes { mode: Some(*mode), ..Default::default() };
            Ok(fs.set_attributes(find(path)?, &set).map(drop)?)
        }
    }
}

/// The umask belongs to the process, so the kernel makes things in a process of their own.
fn with_umask(program: &str, path: &Path, mode: u32) -> Result<()> {
    let words =
        format!("import os; os.umask(0o027); {program}(os.fsencode({:?}), 0o{mode:o})", path.display());
    creamery_testkit::Run::new("python3").args(["-c", &words]).ok()?;
    Ok(())
}

fn kernels(root: &Path, step: &AclStep) -> Result<()> {
    match step {
        AclStep::Create(path, mode) => with_umask(
            "(lambda p, m: os.close(os.open(p, os.O_CREAT | os.O_EXCL, m)))",
            &root.join(path),
            *mode,
        ),
        AclStep::Mkdir(path, mode) => {
            with_umask("os.mkdir", &root.join(path), mode & 0o777)?;
            if mode & 0o7000 != 0 {
                let now = std::fs::metadata(root.join(path))?.mode();
                std::fs::set_permissions(root.join(path), PermissionsExt::from_mode(now | mode & 0o7000))?;
            }
            Ok(())
        }
        AclStep::Symlink(path) => Ok(std::os::unix::fs::symlink("target", root.join(path))?),
        AclStep::Set(path, name, value) => {
            Ok(rustix::fs::setxattr(root.join(path), *name, value, XattrFlags::empty())?)
        }
        AclStep::Remove(path, name) => Ok(rustix::fs::removexattr(root.join(path), *name)?),
        AclStep::Chmod(path, mode) => {
            Ok(std::fs::set_permissions(root.join(path), PermissionsExt::from_mode(*mode))?)
        }
    }
}

fn beside_the_kernel(bench: &Bench) -> Result<()> {
    let mut fs = ImageFixture::new(bench, &[])?;
    let other = bench.scratch.file("kernels");
    make_image(&other, &[])?;
    let mount = LoopMount::mount(&other, &bench.scratch.dir("kernel")?, "")?;
    for (index, step) in steps().iter().enumerate() {
        ours(&fs, step).map_err(|error| error.context(format!("step {index}")))?;
        kernels(mount.dir(), step).map_err(|error| error.context(format!("step {index}, the kernel")))?;
        if index % 5 == 4 {
            fs.reopen()?;
        }
    }
    let want = Walk::take(mount.dir())?;
    let compare = Compare { mtime: false, root: false, ..Compare::default() };
    fs.with_kernel("ro", |dir| expect_same("after the same steps", &want, &Walk::take(dir)?, &compare))?;
    fs.judge()?;
    mount.unmount()?;
    btrfs_check(&other)
}

fn refusals(bench: &Bench) -> Result<()> {
    let fs = ImageFixture::new(bench, &[])?;
    let top = fs.top();
    let file = fs.file(top, "file")?;
    let link = fs.create(top, b"link", &NewInode { kind: NewKind::Symlink(b"t"), ..NewInode::file(0) })?.id;
    let valid = list(7, 7, 7, None);
    let set = |id, name: &str, value: &[u8]| kind(fs.set_xattr(id, name.as_bytes(), value, XattrMode::Any));
    ensure!(set(file, ACCESS, b"nonsense") == Some(ErrorKind::Unsupported));
    ensure!(set(file, ACCESS, &valid[..10]) == Some(ErrorKind::InvalidInput));
    ensure!(set(file, ACCESS, &list(9, 7, 7, None)) == Some(ErrorKind::InvalidInput));
    ensure!(set(file, DEFAULT, &valid) == Some(ErrorKind::PermissionDenied));
    ensure!(set(link, ACCESS, &valid) == Some(ErrorKind::Unsupported));
    ensure!(fs.list_xattrs(file, Wait::Yes)?.is_empty());
    fs.judge()
}
