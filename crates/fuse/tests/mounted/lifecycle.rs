//! From mount to unmount: several threads, signals, ends good and bad.

use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use creamery_base::panics::Panic;
use creamery_fuse::protocol::InitFlags;
use creamery_fuse::{
    AttrReply, Errno, FileHandle, MountOptions, Negotiation, NodeId, Notice, NotifyThread, Operations,
    RequestContext, Result, Session, Unmount,
};

use crate::harness::{Mounted, can_mount, scratch, skip};
use crate::memory::Memory;

fn mounted_at(dir: &std::path::Path) -> Option<String> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let needle = format!(" {} ", dir.display());
    mounts.lines().find(|line| line.contains(&needle)).map(str::to_owned)
}

#[test]
fn the_mount_is_there_when_mount_returns_and_gone_when_run_does() {
    let test = "the_mount_is_there_when_mount_returns_and_gone_when_run_does";
    if !can_mount(test) {
        return;
    }
    let dir = scratch(test);
    let mut options = MountOptions::new("an image, with comma", "creamery-test");
    options.parse("ro,noatime,noexec").unwrap();
    let session = Session::mount(Arc::new(Memory::new()), &dir, &options).unwrap();
    let line = mounted_at(&dir).unwrap();
    assert!(line.starts_with("an\\040image,\\040with\\040comma "), "{line}");
    assert!(line.contains(" fuse.creamery-test ro,nosuid,nodev,noexec,noatime,"), "{line}");
    assert!(line.contains(",default_permissions") && !line.contains("allow_other"), "{line}");
    let agreement = *session.agreement();
    let wanted = InitFlags::MAX_PAGES | InitFlags::SETXATTR_EXT | InitFlags::POSIX_ACL | InitFlags::DONT_MASK;
    assert!(agreement.flags.contains(wanted), "{agreement:?}");
    assert_eq!(agreement.max_write, 1 << 20);
    let unmounter = session.unmounter();
    let server = std::thread::spawn(move || session.run(3));
    let error = fs::write(dir.join("x"), "").unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    unmounter.unmount(Unmount::WhenIdle).unwrap();
    server.join().unwrap().unwrap();
    assert!(unmounter.is_gone() && mounted_at(&dir).is_none());
    unmounter.unmount(Unmount::WhenIdle).unwrap();
    fs::remove_dir(dir).unwrap();
}

#[test]
fn a_busy_mount_refuses_to_go_but_goes_lazily() {
    let Some(mut mount) = Mounted::new("a_busy_mount_refuses_to_go_but_goes_lazily") else { return };
    let file = File::create(mount.path("open")).unwrap();
    let error = mount.unmounter.unmount(Unmount::WhenIdle).unwrap_err();
    assert_eq!(error.kind(), creamery_base::ErrorKind::Busy);
    mount.unmounter.unmount(Unmount::Lazy).unwrap();
    assert!(mounted_at(&mount.dir).is_none());
    file.sync_all().unwrap();
    drop(file);
    mount.finish();
}

#[test]
fn an_unmount_by_somebody_else_ends_the_session() {
    let Some(mut mount) = Mounted::new("an_unmount_by_somebody_else_ends_the_session") else { return };
    rustix::mount::unmount(&mount.dir, rustix::mount::UnmountFlags::empty()).unwrap();
    mount.join();
    assert!(mount.unmounter.is_gone(), "whatever is mounted there next is not ours");
    mount.finish();
}

#[test]
fn a_dead_mount_is_cleared_away() {
    let Some(mut mount) = Mounted::new("a_dead_mount_is_cleared_away") else { return };
    let file = File::create(mount.path("open")).unwrap();
    // Closes the connection, then finds that the mount is in use and leaves it.
    let forced = rustix::mount::unmount(&mount.dir, rustix::mount::UnmountFlags::FORCE);
    assert_eq!(forced, Err(rustix::io::Errno::BUSY));
    mount.join();
    assert!(mounted_at(&mount.dir).is_none());
    assert!(file.sync_all().is_err());
    mount.finish();
}

#[test]
fn the_helper_mounts_and_unmounts_for_root_too() {
    let test = "the_helper_mounts_and_unmounts_for_root_too";
    if !can_mount(test) {
        return;
    }
    if Command::new("fusermount3").arg("-V").stdout(Stdio::null()).status().is_err() {
        return skip(test, "fusermount3 is not installed (package fuse3)");
    }
    let dir = scratch(test);
    let mut options = MountOptions::new("an image, with \\ and comma", "creamery-test");
    options.through_helper = true;
    options.parse("ro,noexec").unwrap();
    let session = Session::mount(Arc::new(Memory::new()), &dir, &options).unwrap();
    let line = mounted_at(&dir).unwrap();
    let shown = "an\\040image,\\040with\\040\\134\\040and\\040comma ";
    assert!(line.starts_with(shown) && line.contains(" fuse.creamery-test ro,nosuid,nodev,noexec"), "{line}");
    let unmounter = session.unmounter();
    let server = std::thread::spawn(move || session.run(2));
    let root = File::open(&dir).unwrap();
    let error = unmounter.unmount(Unmount::WhenIdle).unwrap_err();
    assert_eq!(error.kind(), creamery_base::ErrorKind::Busy, "{error}");
    unmounter.unmount(Unmount::Lazy).unwrap();
    assert!(mounted_at(&dir).is_none());
    drop(root);
    server.join().unwrap().unwrap();
    fs::remove_dir(dir).unwrap();
}

#[test]
fn a_session_that_never_ran_unmounts_when_dropped() {
    let test = "a_session_that_never_ran_unmounts_when_dropped";
    if !can_mount(test) {
        return;
    }
    let dir = scratch(test);
    drop(Session::mount(Arc::new(Memory::new()), &dir, &MountOptions::new("x", "")).unwrap());
    assert!(mounted_at(&dir).is_none());
    fs::remove_dir(dir).unwrap();
}

#[test]
fn a_filesystem_that_refuses_to_start_leaves_nothing_mounted() {
    struct Refuses;
    impl Operations for Refuses {
        fn init(&self, _: &mut Negotiation) -> Result<()> {
            Err(Errno::EUCLEAN)
        }
    }
    let test = "a_filesystem_that_refuses_to_start_leaves_nothing_mounted";
    if !can_mount(test) {
        return;
    }
    let dir = scratch(test);
    let error = Session::mount(Arc::new(Refuses), &dir, &MountOptions::new("x", "")).err().unwrap();
    assert!(error.to_string().contains("Structure needs cleaning"), "{error}");
    assert!(mounted_at(&dir).is_none());
    fs::remove_dir(dir).unwrap();
}

#[test]
fn a_mount_point_that_is_not_there_is_named() {
    let options = MountOptions::new("x", "");
    let error = Session::mount(Arc::new(Memory::new()), "/no/such/place".as_ref(), &options).err().unwrap();
    assert_eq!(error.kind(), creamery_base::ErrorKind::NotFound);
    assert!(error.to_string().contains("/no/such/place"), "{error}");
}

#[test]
fn four_threads_make_and_remove_at_once() {
    let Some(mount) = Mounted::new("four_threads_make_and_remove_at_once") else { return };
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let mount = &mount;
            scope.spawn(move || {
                for round in 0..100 {
                    let (dir, shared) = (mount.path(format!("d{thread}")), mount.path("shared"));
                    fs::create_dir(&dir).unwrap();
                    let text = format!("{thread} {round}");
                    fs::write(dir.join("f"), &text).unwrap();
                    fs::write(&shared, &text).unwrap();
                    assert_eq!(fs::read_to_string(dir.join("f")).unwrap(), text);
                    fs::rename(dir.join("f"), mount.path(format!("f{thread}"))).unwrap();
                    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
                    fs::remove_dir(&dir).unwrap();
                }
            });
        }
    });
    assert_eq!(fs::read_dir(&mount.dir).unwrap().count(), 5);
}

#[test]
fn a_signal_reaches_the_operation_that_waits() {
    let Some(mount) = Mounted::new("a_signal_reaches_the_operation_that_waits") else { return };
    let stuck = mount.path(std::ffi::OsStr::from_bytes(crate::STUCK));
    let mut reader = Command::new("cat").arg(&stuck).stdout(Stdio::null()).spawn().unwrap();
    while mount.fs.counters.stuck.load(Ordering::Relaxed) == 0 {
        std::thread::yield_now();
    }
    let pid = rustix::process::Pid::from_child(&reader);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(reader.wait().unwrap().signal(), Some(15));
    assert!(mount.fs.counters.interrupted.load(Ordering::Relaxed) > 0);
}

#[test]
fn names_are_looked_up_again_when_the_notify_thread_says_so() {
    let test = "names_are_looked_up_again_when_the_notify_thread_says_so";
    let Some(mount) = Mounted::new(test) else { return };
    fs::write(mount.path("here"), "x").unwrap();
    assert!(!mount.path("there").exists());
    let ctx = RequestContext::new(0, 0, 0);
    mount.fs.rename(&ctx, NodeId::ROOT, b"here", NodeId::ROOT, b"there", Default::default()).unwrap();
    assert!(mount.path("here").exists() && !mount.path("there").exists(), "the kernel cannot know");
    let thread = NotifyThread::spawn(mount.notifier.clone());
    let queue = thread.queue();
    for name in [&b"here"[..], b"there", b"never heard of"] {
        queue.send(Notice::Entry { parent: NodeId::ROOT, name: name.to_vec() });
    }
    drop(thread);
    queue.send(Notice::Inode { node: NodeId::ROOT, offset: -1, len: 0 });
    assert!(!mount.path("here").exists() && mount.path("there").exists());
}

const CHILD: &str = "CREAMERY_FUSE_PANIC_IN";

/// Asking for attributes is a bug here.
struct Panics;

impl Operations for Panics {
    fn getattr(&self, _: &RequestContext<'_>, _: NodeId, _: Option<FileHandle>) -> Result<AttrReply> {
        panic!("a bug");
    }

    fn panicked(&self, panic: &Panic) {
        panic!("a bug in handling {panic}");
    }
}

#[test]
fn a_panic_while_one_is_handled_detaches_the_mount_and_ends_the_process() {
    let test = "a_panic_while_one_is_handled_detaches_the_mount_and_ends_the_process";
    if let Some(dir) = std::env::var_os(CHILD) {
        let options = MountOptions::new("panics", "");
        let session = Session::mount(Arc::new(Panics), dir.as_ref(), &options).unwrap();
        println!("mounted");
        let _ = session.run(2);
        unreachable!("it panics first");
    }
    if !can_mount(test) {
        return;
    }
    let dir = scratch(test);
    let name = "lifecycle::a_panic_while_one_is_handled_detaches_the_mount_and_ends_the_process";
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(CHILD, &dir)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while mounted_at(&dir).is_none() && child.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    assert!(fs::metadata(dir.join("x")).is_err());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.signal(), Some(6));
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(words.contains("a bug in handling") && words.contains("the mount is detached"), "{words}");
    assert!(mounted_at(&dir).is_none());
    fs::remove_dir(dir).unwrap();
}
