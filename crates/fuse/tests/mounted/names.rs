//! Names: links, renames, files without a name, open files that lost theirs.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::harness::Mounted;

#[test]
fn names_of_any_bytes_up_to_255_live_side_by_side() {
    let Some(mount) = Mounted::new("names_of_any_bytes_up_to_255_live_side_by_side") else { return };
    let odd: Vec<u8> = (1..=255).filter(|&byte| byte != b'/').collect();
    let long = [b'x'; 255];
    for name in [&odd[..], &long[..]] {
        fs::write(mount.path(std::ffi::OsStr::from_bytes(name)), name).unwrap();
        assert_eq!(fs::read(mount.path(std::ffi::OsStr::from_bytes(name))).unwrap(), name);
    }
    let too_long = mount.path("y".repeat(256));
    let error = fs::write(too_long, "").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::NAMETOOLONG.raw_os_error()));
}

#[test]
fn links_share_an_inode_and_symlinks_keep_their_bytes() {
    let Some(mount) = Mounted::new("links_share_an_inode_and_symlinks_keep_their_bytes") else { return };
    fs::write(mount.path("a"), "x").unwrap();
    fs::hard_link(mount.path("a"), mount.path("b")).unwrap();
    let (a, b) = (fs::metadata(mount.path("a")).unwrap(), fs::metadata(mount.path("b")).unwrap());
    assert_eq!((a.ino(), a.nlink()), (b.ino(), 2));
    let target = "../../somewhere/".repeat(200);
    std::os::unix::fs::symlink(&target, mount.path("l")).unwrap();
    assert_eq!(fs::read_link(mount.path("l")).unwrap().to_str(), Some(target.as_str()));
    assert_eq!(fs::symlink_metadata(mount.path("l")).unwrap().size(), target.len() as u64);
}

#[test]
fn rename_replaces_refuses_exchanges_and_leaves_a_whiteout() {
    let Some(mount) = Mounted::new("rename_replaces_refuses_exchanges_and_leaves_a_whiteout") else { return };
    let rename = |from: &str, to: &str, flags| {
        rustix::fs::renameat_with(CWD, mount.path(from), CWD, mount.path(to), flags)
    };
    let read = |name: &str| fs::read_to_string(mount.path(name)).unwrap();
    fs::create_dir(mount.path("dir")).unwrap();
    fs::write(mount.path("a"), "a").unwrap();
    fs::write(mount.path("dir/b"), "b").unwrap();
    assert_eq!(rename("a", "dir/b", RenameFlags::NOREPLACE), Err(Errno::EXIST));
    rename("a", "dir/b", RenameFlags::EXCHANGE).unwrap();
    assert_eq!((read("a"), read("dir/b")), ("b".into(), "a".into()));
    assert_eq!(rename("a", "none", RenameFlags::EXCHANGE), Err(Errno::NOENT));
    rename("a", "c", RenameFlags::NOREPLACE).unwrap();
    rename("c", "dir/b", RenameFlags::empty()).unwrap();
    assert_eq!(read("dir/b"), "b");
    rename("dir/b", "e", RenameFlags::WHITEOUT).unwrap();
    let whiteout = fs::symlink_metadata(mount.path("dir/b")).unwrap();
    assert_eq!((whiteout.mode() & 0o170_000, whiteout.rdev()), (0o020_000, 0));
    assert_eq!(rename("dir", "e", RenameFlags::empty()), Err(Errno::NOTDIR));
}

#[test]
fn a_file_without_a_name_can_get_one() {
    let Some(mount) = Mounted::new("a_file_without_a_name_can_get_one") else { return };
    let flags = OFlags::TMPFILE | OFlags::RDWR;
    let mut file = File::from(rustix::fs::open(&mount.dir, flags, Mode::from(0o640)).unwrap());
    file.write_all(b"born nameless").unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    assert_eq!(fs::read_dir(&mount.dir).unwrap().count(), 0);
    let proc = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::linkat(CWD, proc, CWD, mount.path("named"), AtFlags::SYMLINK_FOLLOW).unwrap();
    assert_eq!(fs::read_to_string(mount.path("named")).unwrap(), "born nameless");
    assert_eq!(fs::metadata(mount.path("named")).unwrap().nlink(), 1);
}

#[test]
fn an_unlinked_file_lives_until_its_last_close() {
    let Some(mount) = Mounted::new("an_unlinked_file_lives_until_its_last_close") else { return };
    fs::write(mount.path("file"), "before").unwrap();
    let mut file = File::options().read(true).append(true).open(mount.path("file")).unwrap();
    fs::remove_file(mount.path("file")).unwrap();
    assert!(!mount.path("file").exists());
    file.write_all(b" after").unwrap();
    let mut text = String::new();
    std::io::Seek::rewind(&mut file).unwrap();
    file.read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), file.metadata().unwrap().nlink()), ("before after", 0));
    assert_eq!(mount.fs.nodes(), 2);
    drop(file);
    let mut mount = mount;
    mount.finish();
}

#[test]
fn directories_refuse_what_linux_refuses() {
    let Some(mount) = Mounted::new("directories_refuse_what_linux_refuses") else { return };
    fs::create_dir_all(mount.path("a/b")).unwrap();
    let errno =
        |result: std::io::Result<()>| result.unwrap_err().raw_os_error().map(Errno::from_raw_os_error);
    assert_eq!(errno(fs::remove_dir(mount.path("a"))), Some(Errno::NOTEMPTY));
    assert_eq!(errno(fs::remove_file(mount.path("a"))), Some(Errno::ISDIR));
    assert_eq!(errno(fs::create_dir(mount.path("a"))), Some(Errno::EXIST));
    assert_eq!(errno(fs::rename(mount.path("a"), mount.path("a/b/c"))), Some(Errno::INVAL));
    assert_eq!(fs::metadata(mount.path("a")).unwrap().nlink(), 3);
    fs::remove_dir_all(mount.path("a")).unwrap();
}
