//! Users of a file or a device are found and named. Tests that need root and loop devices say so when they are skipped.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use creamery_base::ErrorKind;
use creamery_device::{Access, BlockDevice, FileDevice};

use crate::support::{Other, TestLoop, skipped};

const ALL: [Access; 3] = [Access::ReadOnly, Access::ReadWrite, Access::ReadOnlyForced];

fn scratch() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.img");
    drop(FileDevice::create(&path, 128 << 20).unwrap());
    (dir, path)
}

/// The message of the refusal, which must be one line about being in use.
fn refusal(path: &Path, access: Access) -> String {
    let error = FileDevice::open(path, access).err().unwrap_or_else(|| panic!("{access:?} was let in"));
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    let text = error.to_string();
    assert!(text.contains(path.to_str().unwrap()) && !text.contains('\n'), "{text}");
    text
}

#[test]
fn a_writer_is_alone_and_readers_share() {
    let (_dir, path) = scratch();
    let allowed = |held: Access, asked: Access| {
        let _holder = FileDevice::open(&path, held).unwrap();
        FileDevice::open(&path, asked).is_ok()
    };
    let table: Vec<(Access, [bool; 3])> =
        ALL.iter().map(|&held| (held, ALL.map(|asked| allowed(held, asked)))).collect();
    assert_eq!(
        table,
        [
            (Access::ReadOnly, [true, false, true]),
            (Access::ReadWrite, [false, false, true]),
            (Access::ReadOnlyForced, [true, true, true]),
        ]
    );
    FileDevice::open(&path, Access::ReadWrite).unwrap();
}

#[test]
fn a_refusal_names_the_process_that_has_the_file() {
    let (_dir, path) = scratch();
    let _holder = FileDevice::open(&path, Access::ReadWrite).unwrap();
    let text = refusal(&path, Access::ReadOnly);
    assert!(text.contains(&format!("process {}", std::process::id())), "{text}");
}

#[test]
fn a_refusal_names_another_process_also_when_the_locker_left_the_lock_to_its_child() {
    let (_dir, path) = scratch();
    // The outer shell locks and ends; its child in the background keeps the open file.
    let script = "exec 3<&0 9<>\"$0\"; flock -x 9 || exit 1; (echo $BASHPID; read -r _ <&3) &";
    let spawned = Command::new("bash")
        .args(["-c", script])
        .arg(&path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut child) = spawned.map(Other) else {
        return skipped("bash");
    };
    let mut line = String::new();
    BufReader::new(child.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let stdin = child.0.stdin.take();
    child.0.wait().unwrap();
    let pid: u32 = line.trim().parse().expect("the child tells its id; is flock(1) installed?");
    let text = refusal(&path, Access::ReadWrite);
    assert!(text.contains(&format!("process {pid} (bash)")), "{text}");
    drop(stdin);
}

/// A mount that ends with the test.
struct Mount(PathBuf);

impl Mount {
    fn of(device: &Path, at: &Path) -> Self {
        fs::create_dir_all(at).unwrap();
        let status = Command::new("mount").arg(device).arg(at).status().unwrap();
        assert!(status.success(), "mounting {}", device.display());
        Self(at.to_owned())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

fn run(program: &str, path: &Path) -> bool {
    let outcome =
        Command::new(program).arg("-q").arg(path).stdout(Stdio::null()).stderr(Stdio::null()).status();
    outcome.is_ok_and(|status| status.success())
}

#[test]
fn a_backing_file_is_refused_with_the_loop_device() {
    let (_dir, path) = scratch();
    let Some(device) = TestLoop::attach(&path) else { return };
    for access in [Access::ReadOnly, Access::ReadWrite] {
        let text = refusal(&path, access);
        assert!(text.contains(device.0.to_str().unwrap()), "{text}");
    }
    assert_eq!(FileDevice::open(&path, Access::ReadOnlyForced).unwrap().len(), 128 << 20);
    drop(device);
}

#[test]
fn a_loop_device_is_a_device_like_any_other() {
    let (_dir, path) = scratch();
    let Some(device) = TestLoop::attach(&path) else { return };
    assert!(fs::metadata(&device.0).unwrap().file_type().is_block_device());
    let open = FileDevice::open(&device.0, Access::ReadWrite).unwrap();
    assert!(open.is_block_device());
    assert_eq!(open.len(), 128 << 20);
    open.write_at(65536, b"through").unwrap();
    open.zero(1 << 20, 1 << 20).unwrap();
    open.write_at(4 << 20, &vec![3; 1 << 20]).unwrap();
    open.flush().unwrap();
    let before = fs::metadata(&path).unwrap().blocks();
    open.discard(4 << 20, 1 << 20).unwrap();
    assert!(fs::metadata(&path).unwrap().blocks() < before);
    assert_eq!(open.resize(1 << 20).unwrap_err().kind(), ErrorKind::Unsupported);
    let text = refusal(&device.0, Access::ReadOnly);
    assert!(text.contains(&format!("process {}", std::process::id())), "{text}");
    let text = refusal(&device.0, Access::ReadWrite);
    assert!(text.contains(&format!("process {}", std::process::id())), "{text}");
    drop(open);
    let first = FileDevice::open(&device.0, Access::ReadOnly).unwrap();
    let second = FileDevice::open(&device.0, Access::ReadOnly).unwrap();
    assert_eq!(first.id(), second.id());
    let mut bytes = [0; 7];
    second.read_at(65536, &mut bytes).unwrap();
    assert_eq!(&bytes, b"through");
}

#[test]
fn a_device_that_takes_no_writes_is_refused_to_writers() {
    let (_dir, path) = scratch();
    let Some(device) = TestLoop::attach_as(&path, &["--read-only"]) else { return };
    let refused = FileDevice::open(&device.0, Access::ReadWrite).err().expect("it takes no writes");
    assert_eq!(refused.kind(), ErrorKind::ReadOnly);
    assert!(refused.to_string().contains(device.0.to_str().unwrap()), "{refused}");
    assert_eq!(FileDevice::open(&device.0, Access::ReadOnly).unwrap().len(), 128 << 20);
}

#[test]
fn many_readers_of_a_block_device_do_not_take_each_other_for_the_kernel() {
    let (_dir, path) = scratch();
    let Some(device) = TestLoop::attach(&path) else { return };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope
                .spawn(|| (0..50).for_each(|_| drop(FileDevice::open(&device.0, Access::ReadOnly).unwrap())));
        }
    });
}

#[test]
fn a_loop_device_is_refused_while_we_hold_its_backing_file() {
    let (_dir, path) = scratch();
    let _ours = FileDevice::open(&path, Access::ReadWrite).unwrap();
    let Some(device) = TestLoop::attach(&path) else {
        return;
    };
    let text = refusal(&device.0, Access::ReadWrite);
    assert!(text.contains("backing file") && text.contains(&std::process::id().to_string()), "{text}");
}

#[test]
fn of_two_loop_devices_of_a_file_one_is_written() {
    let (_dir, path) = scratch();
    let Some(one) = TestLoop::attach(&path) else { return };
    let Some(other) = TestLoop::attach(&path) else { return };
    let process = format!("process {}", std::process::id());
    for is_deleted in [false, true] {
        if is_deleted {
            fs::remove_file(&path).unwrap();
        }
        let writer = FileDevice::open(&one.0, Access::ReadWrite).unwrap();
        let text = refusal(&other.0, Access::ReadWrite);
        assert!(text.contains(&process) && text.contains("backing file"), "deleted {is_deleted}: {text}");
        FileDevice::open(&other.0, Access::ReadOnlyForced).unwrap();
        writer.close();
        FileDevice::open(&other.0, Access::ReadWrite).unwrap();
    }
}

#[test]
fn loop_devices_of_other_bytes_of_a_file_are_written_beside() {
    let (_dir, path) = scratch();
    let Some(first) = TestLoop::attach_as(&path, &["--sizelimit", "1048576"]) else { return };
    let Some(second) = TestLoop::attach_as(&path, &["--offset", "1048576"]) else { return };
    let Some(whole) = TestLoop::attach(&path) else { return };
    let one = FileDevice::open(&first.0, Access::ReadWrite).unwrap();
    let other = FileDevice::open(&second.0, Access::ReadWrite).unwrap();
    refusal(&whole.0, Access::ReadWrite);
    drop(one);
    refusal(&whole.0, Access::ReadWrite);
    drop(other);
    let _whole = FileDevice::open(&whole.0, Access::ReadWrite).unwrap();
    for part in [&first.0, &second.0] {
        refusal(part, Access::ReadWrite);
    }
}

#[test]
fn a_loop_device_is_refused_while_another_of_its_file_is_mounted() {
    for is_deleted in [false, true] {
        let (dir, path) = scratch();
        if !run("mkfs.btrfs", &path) {
            return skipped("mkfs.btrfs");
        }
        let Some(mounted) = TestLoop::attach(&path) else { return };
        let Some(other) = TestLoop::attach(&path) else { return };
        let at = dir.path().join("a place");
        let mount = Mount::of(&mounted.0, &at);
        if is_deleted {
            fs::remove_file(&path).unwrap();
        }
        let text = refusal(&other.0, Access::ReadWrite);
        let names = [at.to_str().unwrap(), mounted.0.to_str().unwrap(), other.0.to_str().unwrap()];
        assert!(names.iter().all(|name| text.contains(name)), "{text}");
        drop(mount);
        FileDevice::open(&other.0, Access::ReadWrite).unwrap();
    }
}

#[test]
fn a_mounted_device_is_refused_with_its_mount_point() {
    for program in ["mkfs.btrfs", "mkfs.ext4"] {
        let (dir, path) = scratch();
        if !run(program, &path) {
            skipped(program);
            continue;
        }
        let Some(device) = TestLoop::attach(&path) else { return };
        let at = dir.path().join("a place");
        let mount = Mount::of(&device.0, &at);
        for asked in [&device.0, &path] {
            for access in [Access::ReadOnly, Access::ReadWrite] {
                let text = refusal(asked, access);
                assert!(text.contains(at.to_str().unwrap()), "{program}: {text}");
            }
            FileDevice::open(asked, Access::ReadOnlyForced).unwrap();
        }
        drop(mount);
        FileDevice::open(&device.0, Access::ReadWrite).unwrap();
        drop(device);
    }
}
