//! Times, modes, owners, extended attributes, controls.

use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::sync::atomic::Ordering;

use rustix::fs::{
    AtFlags, CWD, FileType, IFlags, Mode, StatxFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, XattrFlags,
};
use rustix::io::Errno;

use crate::harness::Mounted;
use crate::memory::{DEFAULT_ACL, now};

fn times(path: &std::path::Path) -> [(i64, i64); 2] {
    let meta = fs::symlink_metadata(path).unwrap();
    [(meta.atime(), meta.atime_nsec()), (meta.mtime(), meta.mtime_nsec())]
}

fn set_times(path: &std::path::Path, access: (i64, i64), modification: (i64, i64)) {
    let time = |(sec, nsec)| Timespec { tv_sec: sec, tv_nsec: nsec };
    let times = Timestamps { last_access: time(access), last_modification: time(modification) };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

#[test]
fn statx_gives_the_time_of_birth() {
    let Some(mount) = Mounted::new("statx_gives_the_time_of_birth") else { return };
    let before = now();
    fs::write(mount.path("file"), "x").unwrap();
    set_times(&mount.path("file"), (1, 0), (2, 0));
    let stat = rustix::fs::statx(CWD, mount.path("file"), AtFlags::empty(), StatxFlags::ALL).unwrap();
    assert_ne!(stat.stx_mask & StatxFlags::BTIME.bits(), 0);
    assert!((stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec) >= (before.sec, before.nsec));
    assert_eq!((stat.stx_mtime.tv_sec, stat.stx_size), (2, 1));
    assert!(mount.fs.counters.statx.load(Ordering::Relaxed) > 0);
}

#[test]
fn times_before_1970_are_exact_to_the_nanosecond() {
    let Some(mount) = Mounted::new("times_before_1970_are_exact_to_the_nanosecond") else { return };
    let path = mount.path("old");
    fs::write(&path, "x").unwrap();
    for time in [(-1, 999_999_999), (-2_208_988_800, 123_456_789), (0, 1), (9_999_999_999, 1)] {
        set_times(&path, time, (time.0 - 1, time.1));
        mount.notifier.inval_inode(creamery_fuse::NodeId::new(2), -1, 0).unwrap();
        assert_eq!(times(&path), [time, (time.0 - 1, time.1)]);
    }
}

#[test]
fn utimensat_knows_now_and_omit() {
    let Some(mount) = Mounted::new("utimensat_knows_now_and_omit") else { return };
    let path = mount.path("file");
    fs::write(&path, "x").unwrap();
    set_times(&path, (100, 1), (200, 2));
    set_times(&path, (0, UTIME_OMIT), (300, 3));
    assert_eq!(times(&path), [(100, 1), (300, 3)]);
    let before = now();
    set_times(&path, (0, UTIME_NOW), (0, UTIME_OMIT));
    let [access, modification] = times(&path);
    assert!(access.0 >= before.sec && modification == (300, 3));
}

#[test]
fn chown_clears_setuid_and_chmod_keeps_12_bits() {
    let Some(mount) = Mounted::new("chown_clears_setuid_and_chmod_keeps_12_bits") else { return };
    let path = mount.path("file");
    fs::write(&path, "x").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o6755)).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode(), 0o106_755);
    std::os::unix::fs::chown(&path, Some(1234), Some(5678)).unwrap();
    let meta = fs::metadata(&path).unwrap();
    assert_eq!((meta.uid(), meta.gid(), meta.mode()), (1234, 5678, 0o100_755));
}

#[test]
fn umask_counts_unless_the_directory_has_a_default_acl() {
    let Some(mount) = Mounted::new("umask_counts_unless_the_directory_has_a_default_acl") else { return };
    fs::create_dir(mount.path("plain")).unwrap();
    fs::create_dir(mount.path("acl")).unwrap();
    // Version 2; user::rwx, group::rwx, other::r-x (tag, permissions, id).
    let mut acl = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions) in [(1_u16, 7_u16), (4, 7), (32, 5)] {
        acl.extend(tag.to_le_bytes().into_iter().chain(permissions.to_le_bytes()).chain([0xff; 4]));
    }
    let name = std::str::from_utf8(DEFAULT_ACL).unwrap();
    rustix::fs::setxattr(mount.path("acl"), name, &acl, XattrFlags::empty()).unwrap();
    // The umask of a process is one for all its threads; a child has its own.
    let script = "umask 027; touch plain/f acl/f; mkdir plain/d acl/d";
    let status = std::process::Command::new("sh").arg("-c").arg(script).current_dir(&mount.dir).status();
    assert!(status.unwrap().success());
    let mode = |name: &str| fs::metadata(mount.path(name)).unwrap().mode() & 0o777;
    assert_eq!((mode("plain/f"), mode("plain/d")), (0o640, 0o750));
    assert_eq!((mode("acl/f"), mode("acl/d")), (0o666, 0o777));
}

#[test]
fn extended_attributes_keep_every_byte_and_the_empty_value() {
    let Some(mount) = Mounted::new("extended_attributes_keep_every_byte_and_the_empty_value") else { return };
    let path = mount.path("file");
    fs::write(&path, "x").unwrap();
    let all: Vec<u8> = (0..=255).cycle().take(60_000).collect();
    rustix::fs::setxattr(&path, "user.empty", b"", XattrFlags::CREATE).unwrap();
    rustix::fs::setxattr(&path, "user.all", &all, XattrFlags::empty()).unwrap();
    let again = rustix::fs::setxattr(&path, "user.all", b"", XattrFlags::CREATE);
    assert_eq!(again, Err(Errno::EXIST));
    let missing = rustix::fs::setxattr(&path, "user.none", b"", XattrFlags::REPLACE);
    assert_eq!(missing, Err(Errno::NODATA));

    let mut room = vec![0; 65_536];
    assert_eq!(rustix::fs::getxattr(&path, "user.empty", &mut room), Ok(0));
    assert_eq!(rustix::fs::getxattr_query(&path, "user.all"), Ok(60_000), "the size alone");
    assert_eq!(rustix::fs::getxattr(&path, "user.all", &mut room), Ok(60_000));
    assert_eq!(room[..60_000], all);
    assert_eq!(rustix::fs::getxattr(&path, "user.all", &mut room[..10]), Err(Errno::RANGE));
    assert_eq!(rustix::fs::getxattr(&path, "user.none", &mut room), Err(Errno::NODATA));

    assert_eq!(rustix::fs::listxattr_query(&path), Ok(20));
    assert_eq!(rustix::fs::listxattr(&path, &mut room), Ok(20));
    assert_eq!(&room[..20], b"user.all\0user.empty\0");
    rustix::fs::removexattr(&path, "user.all").unwrap();
    assert_eq!(rustix::fs::removexattr(&path, "user.all"), Err(Errno::NODATA));
}

#[test]
fn inode_flags_arrive_as_controls_on_files_and_directories() {
    let Some(mount) = Mounted::new("inode_flags_arrive_as_controls_on_files_and_directories") else { return };
    fs::write(mount.path("file"), "x").unwrap();
    fs::create_dir(mount.path("dir")).unwrap();
    for name in ["file", "dir"] {
        let open = File::open(mount.path(name)).unwrap();
        assert_eq!(rustix::fs::ioctl_getflags(&open).unwrap(), IFlags::empty());
        rustix::fs::ioctl_setflags(&open, IFlags::NOATIME | IFlags::NODUMP).unwrap();
        assert_eq!(rustix::fs::ioctl_getflags(&open).unwrap(), IFlags::NOATIME | IFlags::NODUMP);
    }
}

#[test]
fn device_nodes_keep_both_numbers() {
    let Some(mount) = Mounted::new("device_nodes_keep_both_numbers") else { return };
    for (name, kind, major, minor) in [
        ("null", FileType::CharacterDevice, 1, 3),
        ("big", FileType::BlockDevice, 259, 1_000_000),
        ("fifo", FileType::Fifo, 0, 0),
    ] {
        let device = rustix::fs::makedev(major, minor);
        rustix::fs::mknodat(CWD, mount.path(name), kind, Mode::from(0o600), device).unwrap();
        let meta = fs::metadata(mount.path(name)).unwrap();
        let found = (rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev()));
        assert_eq!(found, (major, minor), "{name}");
    }
    assert!(fs::metadata(mount.path("fifo")).unwrap().file_type().is_fifo());
}

#[test]
fn a_control_goes_to_files_and_directories_and_never_to_a_driver() {
    const NUMBER: u32 = creamery_fuse::control_number::<8>(0xe6, 7);
    let Some(mount) = Mounted::new("a_control_goes_to_files_and_directories_and_never_to_a_driver") else {
        return;
    };
    for (name, kind, device) in [
        ("null", FileType::CharacterDevice, rustix::fs::makedev(1, 3)),
        ("fifo", FileType::Fifo, 0),
        ("file", FileType::RegularFile, 0),
    ] {
        rustix::fs::mknodat(CWD, mount.path(name), kind, Mode::from(0o600), device).unwrap();
    }
    let send = |name: &str| {
        let mut options = File::options();
        let open = options.read(true).write(name != ".").open(mount.path(name)).unwrap();
        creamery_fuse::control::<NUMBER, 8>(&open, &mut [0; 8]).unwrap_err()
    };
    for name in ["null", "fifo"] {
        assert_eq!(send(name).kind(), std::io::ErrorKind::Unsupported, "{name}");
    }
    for name in ["file", "."] {
        assert_eq!(
            send(name).raw_os_error(),
            Some(Errno::NOTTY.raw_os_error()),
            "{name}: the filesystem answers"
        );
    }
}

#[test]
fn statfs_tells_space_and_names() {
    let Some(mount) = Mounted::new("statfs_tells_space_and_names") else { return };
    let stat = rustix::fs::statvfs(&mount.dir).unwrap();
    assert_eq!((stat.f_blocks, stat.f_bfree, stat.f_bavail), (1 << 20, 1 << 19, 1 << 18));
    assert_eq!((stat.f_files, stat.f_namemax, stat.f_bsize), (77, 255, 4096));
}
