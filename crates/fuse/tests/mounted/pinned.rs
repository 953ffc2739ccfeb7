//! Unmounting and remounting below directories that other users exchange.

use std::path::Path;

use creamery_base::ErrorKind;
use creamery_fuse::{MountNumber, MountOptions, PinnedPoint, Unmount};
use rustix::mount::{MountFlags, mount};

use crate::harness::{can_mount, scratch};

fn is_mounted(dir: &Path) -> bool {
    std::fs::remove_dir(dir.join("m")).is_err()
}

/// Two mounts below directories that are about to be exchanged: a user's, where it will be moved to, and another one.
fn scene(test: &str) -> [std::path::PathBuf; 4] {
    let root = scratch(test).canonicalize().unwrap();
    let (of_user, moved, other) = (root.join("user"), root.join("moved"), root.join("other"));
    for dir in [&of_user, &other] {
        std::fs::create_dir_all(dir.join("m")).unwrap();
        mount("none", dir.join("m"), "tmpfs", MountFlags::empty(), None::<&std::ffi::CStr>).unwrap();
    }
    [root, of_user, moved, other]
}

#[test]
fn an_exchanged_directory_leads_to_no_other_mount() {
    let test = "an_exchanged_directory_leads_to_no_other_mount";
    if !can_mount(test) {
        return;
    }
    let [root, of_user, moved, other] = scene(test);
    let looked_at = PinnedPoint::open(&of_user.join("m")).unwrap().number().unwrap();

    // Exchanged before the directory is opened.
    std::fs::rename(&of_user, &moved).unwrap();
    std::os::unix::fs::symlink(&other, &of_user).unwrap();
    let led_astray = PinnedPoint::open(&of_user.join("m")).unwrap();
    let refused = led_astray.unmount(looked_at, Unmount::WhenIdle).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotFound);
    assert!(is_mounted(&other) && is_mounted(&moved));

    // Exchanged after that.
    std::fs::remove_file(&of_user).unwrap();
    std::fs::rename(&moved, &of_user).unwrap();
    let pinned = PinnedPoint::open(&of_user.join("m")).unwrap();
    std::fs::rename(&of_user, &moved).unwrap();
    std::os::unix::fs::symlink(&other, &of_user).unwrap();
    pinned.unmount(looked_at, Unmount::WhenIdle).unwrap();
    assert!(is_mounted(&other) && !is_mounted(&moved));

    let left = PinnedPoint::open(&other.join("m")).unwrap();
    left.unmount(left.number().unwrap(), Unmount::Lazy).unwrap();
    std::fs::remove_dir_all(root).unwrap();
}

/// The kernel gives the number of a mount that is gone to the next one.
#[test]
fn the_next_mount_with_the_number_of_one_that_is_gone_stays() {
    let test = "the_next_mount_with_the_number_of_one_that_is_gone_stays";
    if !can_mount(test) {
        return;
    }
    let [root, of_user, _, other] = scene(test);
    let pinned = |dir: &Path| PinnedPoint::open(&dir.join("m")).unwrap();
    let gone = pinned(&of_user).number().unwrap();
    pinned(&of_user).unmount(gone, Unmount::WhenIdle).unwrap();
    mount("none", of_user.join("m"), "tmpfs", MountFlags::empty(), None::<&std::ffi::CStr>).unwrap();
    let next = pinned(&of_user).number().unwrap();
    // Others mount meanwhile, so the next one need not have got it here.
    let gone = MountNumber { id: next.id, ..gone };
    if gone.unique.is_some() {
        assert_ne!(gone, next);
        let refused = pinned(&of_user).unmount(gone, Unmount::WhenIdle).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::NotFound);
        let mut options = MountOptions::new("none", "none");
        options.set_read_only();
        assert_eq!(pinned(&of_user).remount(gone, &options).unwrap_err().kind(), ErrorKind::NotFound);
    }
    for (dir, number) in [(&of_user, next), (&other, pinned(&other).number().unwrap())] {
        pinned(dir).unmount(number, Unmount::WhenIdle).unwrap();
    }
    std::fs::remove_dir_all(root).unwrap();
}

/// While a mount is held its numbers are no other mount's, and only that one is detached.
#[test]
fn a_held_mount_is_detached_and_no_other() {
    let test = "a_held_mount_is_detached_and_no_other";
    if !can_mount(test) {
        return;
    }
    let [root, of_user, _, other] = scene(test);
    let pinned = |dir: &Path| PinnedPoint::open(&dir.join("m")).unwrap();
    let gone = pinned(&of_user).hold().unwrap();
    gone.ask().unwrap();
    pinned(&of_user).unmount(gone.number(), Unmount::Lazy).unwrap();
    mount("none", of_user.join("m"), "tmpfs", MountFlags::empty(), None::<&std::ffi::CStr>).unwrap();
    assert_ne!(pinned(&of_user).number().unwrap().id, gone.number().id);
    assert_eq!(gone.detach().unwrap_err().kind(), ErrorKind::NotFound, "HELDMOUNT-1");
    assert!(is_mounted(&of_user) && is_mounted(&other));
    for dir in [&of_user, &other] {
        pinned(dir).hold().unwrap().detach().unwrap();
        assert!(!is_mounted(dir));
    }
    std::fs::remove_dir_all(root).unwrap();
}

#[test]
fn an_exchanged_directory_has_no_other_mount_remounted() {
    let test = "an_exchanged_directory_has_no_other_mount_remounted";
    if !can_mount(test) {
        return;
    }
    let [root, of_user, moved, other] = scene(test);
    let is_read_only = |dir: &Path| std::fs::write(dir.join("m/file"), "").is_err();
    let mut options = MountOptions::new("none", "none");
    options.set_read_only();
    let looked_at = PinnedPoint::open(&of_user.join("m")).unwrap().number().unwrap();
    let exchange = || {
        std::fs::rename(&of_user, &moved).unwrap();
        std::os::unix::fs::symlink(&other, &of_user).unwrap();
    };

    // Exchanged before the directory is opened.
    exchange();
    let led_astray = PinnedPoint::open(&of_user.join("m")).unwrap();
    assert_eq!(led_astray.remount(looked_at, &options).unwrap_err().kind(), ErrorKind::NotFound);
    assert!(!is_read_only(&other) && !is_read_only(&moved));

    // Exchanged after that.
    std::fs::remove_file(&of_user).unwrap();
    std::fs::rename(&moved, &of_user).unwrap();
    let pinned = PinnedPoint::open(&of_user.join("m")).unwrap();
    exchange();
    pinned.remount(looked_at, &options).unwrap();
    assert!(!is_read_only(&other) && is_read_only(&moved));

    for dir in [&other, &moved] {
        let left = PinnedPoint::open(&dir.join("m")).unwrap();
        left.unmount(left.number().unwrap(), Unmount::Lazy).unwrap();
    }
    std::fs::remove_dir_all(root).unwrap();
}
