//! Roles, as transcripts: the daily work of an image builder, of a program that embeds a filesystem, and of a user of
//! btrfs-progs. (A rescuer's is `roles_rescuer`.)

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::walk::{Compare, Walk, expect_same};
use creamery_testkit::{Finished, Judge, LoopMount, Run, btrfs_check};

use crate::support::{JUDGED, MOUNTED, sparse_file};

pub(crate) fn cases() -> Vec<Case> {
    let tools = [Judge::Tool("setpriv")];
    vec![
        Case::new("roles/image-builder", &[&JUDGED[..], &tools].concat(), image_builder),
        Case::new("roles/embedder", &JUDGED, embedder),
        Case::new("roles/sysadmin", &MOUNTED, sysadmin),
    ]
}

/// A folder with links to the program under all its names.
fn links(bench: &Bench, names: &[&str]) -> Result<PathBuf> {
    let dir = bench.scratch.dir("bin")?;
    names.iter().try_for_each(|name| symlink(bench.creamery().path(), dir.join(name)))?;
    Ok(dir)
}

fn path_with(dir: &Path) -> String {
    format!("{}:{}", dir.display(), std::env::var("PATH").unwrap_or_default())
}

/// The job of an unprivileged CI: a root folder from a distribution's archive, a layer above it, and further files with owners and modes
/// that it could not make on the host; twice, with equal bytes.
const BUILD: &str = r#"
export SOURCE_DATE_EPOCH=1700000000 TMPDIR=.
creamery mkfs -q -L root -U 0d6f2b5c-6d0b-4c8e-9a39-5b2f7b0c8f11 -b 300M --compress zstd --oci-whiteouts \
    --from-tar base.tar.gz --from-tar app.tar "$1"
creamery mkdir -p "$1:/etc/systemd/system/multi-user.target.wants"
printf '[Service]\nExecStart=/usr/bin/app\n' > app.service
creamery cp app.service "$1:/etc/systemd/system/app.service"
creamery ln -s ../app.service "$1:/etc/systemd/system/multi-user.target.wants/app.service"
creamery chown -R 0:0 "$1:/etc/systemd"
creamery chown 0:4 "$1:/var/log/app"
creamery chmod 2750 "$1:/var/log/app"
creamery chmod u+s "$1:/usr/bin/app"
creamery mv "$1:/etc/hostname" "$1:/etc/hostname.old"
echo appliance | creamery cp - "$1:/etc/hostname"
creamery touch -d @1700000000 "$1:/etc/hostname" "$1:/etc/systemd/system/app.service"
creamery check "$1" > /dev/null 2>&1
"#;

/// The equivalent work with tools that write to a folder, as root.
const BY_HAND: &str = r#"
tar -xpzf ../place/base.tar.gz
rm etc/motd
tar -xpf ../place/app.tar --exclude=.wh.*
mkdir -p etc/systemd/system/multi-user.target.wants
cp ../place/app.service etc/systemd/system/app.service
ln -s ../app.service etc/systemd/system/multi-user.target.wants/app.service
chown -R 0:0 etc/systemd
chown 0:4 var/log/app
chmod 2750 var/log/app
chmod u+s usr/bin/app
mv etc/hostname etc/hostname.old
echo appliance > etc/hostname
touch -d @1700000000 etc/hostname etc/systemd/system/app.service
"#;

fn image_builder(bench: &Bench) -> Result<()> {
    let (place, model) = (bench.scratch.dir("place")?, bench.scratch.dir("model")?);
    let script = "mkdir -p base/etc base/usr/bin base/var/log app/usr/bin app/var/log/app app/etc; \
        echo dairy > base/etc/hostname; echo welcome > base/etc/motd; seq 60000 > base/usr/share; \
        ln -s ../usr base/etc/link; touch app/etc/.wh.motd; seq 30000 > app/usr/bin/app; chmod 755 app/usr/bin/app; \
        tar --owner=0 --group=0 --numeric-owner -C base -czf place/base.tar.gz .; \
        tar --owner=0 --group=0 --numeric-owner -C app -cf place/app.tar .";
    Run::new("sh").args(["-ec", script]).within(bench.scratch.path()).ok()?;
    let bin = links(bench, &["creamery"])?;
    Run::new("chown").args(["-R", "65534:65534"]).arg(&place).ok()?;
    Run::new("chmod").arg("755").arg(bench.scratch.path()).ok()?;
    // The real program may lie where the user has no access.
    let copy = bin.join("creamery");
    fs::remove_file(&copy)?;
    bench.creamery().copy_to(&copy)?;
    for image in ["one.img", "other.img"] {
        let run = Run::new("setpriv").args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
        let run = run.args(["sh", "-ec", BUILD, "sh", image]).within(&place);
        let said = run.env("PATH", path_with(&bin)).ok()?;
        ensure!(said.stdout.is_empty() && said.stderr.is_empty(), "{said}");
    }
    let (one, other) = (place.join("one.img"), place.join("other.img"));
    btrfs_check(&one)?;
    Run::new("sh").args(["-ec", BY_HAND]).within(&model).ok()?;
    // Both have the times of the day in folders to which something was added.
    let compare = Compare { mtime: false, ..Compare::default() };
    for image in [&one, &other] {
        let mount = LoopMount::mount(image, &bench.scratch.file("kernel"), "ro")?;
        let seen = Walk::take(mount.dir())?;
        mount.unmount()?;
        expect_same("the image beside the folder", &Walk::take(&model)?, &seen, &compare)?;
    }
    let fresh = |name: &str| -> Result<Vec<u8>> {
        let words =
            "creamery mkfs -q -U 0d6f2b5c-6d0b-4c8e-9a39-5b2f7b0c8f11 --shrink --from-tar base.tar.gz";
        let run = Run::new("sh").args(["-ec", &format!("TMPDIR=. {words} {name}")]).within(&place);
        run.env("PATH", path_with(&bin)).env("SOURCE_DATE_EPOCH", "1700000000").ok()?;
        Ok(fs::read(place.join(name))?)
    };
    ensure!(fresh("1.img")? == fresh("2.img")?, "two builds of the same archive differ");
    Ok(())
}

/// The library's example of an appliance, which keeps its state in a filesystem inside a file of its own: Linux reads the state that the
/// example prints.
fn embedder(bench: &Bench) -> Result<()> {
    let built = std::env::current_exe()?;
    let built = built.parent().and_then(Path::parent).context("where tests are built")?;
    let appliance = built.join("examples/appliance");
    ensure!(appliance.is_file(), "{} is not built", appliance.display());
    let store = bench.scratch.file("store");
    let call = |words: &[&str]| Run::new(&appliance).arg(&store).args(words).ok();
    call(&["update", "colour", "red"])?;
    call(&["update", "colour", "blue"])?;
    call(&["update", "size", &"5".repeat(100_000)])?;
    call(&["undo"])?;
    ensure!(call(&["show"])?.stdout_text() == "colour=blue\n", "another state");
    let header = fs::read(&store)?;
    ensure!(header.starts_with(b"APPLIANCE 1\n\0"), "its header is gone");
    let alone = bench.scratch.file("alone.img");
    fs::write(&alone, &header[1 << 20..])?;
    btrfs_check(&alone)?;
    let mount = LoopMount::mount(&alone, &bench.scratch.file("kernel"), "ro")?;
    for place in ["state", "before"] {
        let colour = fs::read_to_string(mount.dir().join(place).join("colour"))?;
        ensure!(colour == "blue" && !mount.dir().join(place).join("size").exists(), "{place}: {colour}");
    }
    mount.unmount()?;
    let wrong = Run::new(&appliance).arg(&store).arg("dance").output()?;
    ensure!(wrong.code == Some(1), "{wrong}");
    Ok(())
}

/// A day with btrfs-progs: each command with its output and its exit status.
const DAY: &str = r#"
say() { echo "$ $*"; "$@" 2>>errors; echo "-> $?"; }
quiet() { echo "$ $*"; "$@" > /dev/null 2>>errors; echo "-> $?"; }
say mkfs.btrfs -q -L data -U 0d6f2b5c-6d0b-4c8e-9a39-5b2f7b0c8f11 disk.img
say mkfs.btrfs -q disk.img
say btrfs filesystem label disk.img
say btrfs filesystem label disk.img daily
mount_it
say btrfs subvolume create at/home
say btrfs subvolume create at/home
say btrfs subvolume create -p at/srv/deep/www
say cp /etc/passwd at/home/
seq 100000 > at/home/numbers
say btrfs filesystem sync at
say btrfs subvolume snapshot -r at/home at/home.monday
say btrfs property get at/home.monday ro
say btrfs property set at/home.monday ro false
say btrfs property get at/home
say cmp at/home/numbers at/home.monday/numbers
say btrfs subvolume list at
say btrfs subvolume list -r at
say btrfs subvolume get-default at
say btrfs subvolume set-default 256 at
say btrfs subvolume get-default at
say btrfs subvolume set-default 5 at
say btrfs quota enable at
say btrfs quota rescan -w at
say btrfs qgroup limit 20M at/home
say btrfs qgroup show -r --raw at
say btrfs subvolume delete at/home.monday
say btrfs subvolume delete at/nothing
say btrfs subvolume delete at/home/passwd
say btrfs subvolume sync at
say btrfs subvolume list at
say btrfs filesystem label at
say btrfs filesystem label at evening
umount_it
quiet btrfs check disk.img
quiet fsck.btrfs disk.img
say btrfs filesystem label disk.img
say btrfs rescue zero-log disk.img
say btrfs rescue super-recover disk.img
"#;

/// A transcript without its permitted differences: the number of commits, the words about a subvolume that goes, and whether it is gone, or
/// a rescan done, when asked.
fn as_compared(transcript: &str) -> Vec<String> {
    let is_chance = |line: &&str| {
        ["Waiting for ", "Subvolume id ", "quota rescan started"].iter().any(|words| line.starts_with(words))
    };
    let lines = transcript.lines().filter(|line| !is_chance(line)).map(|line| {
        let mut words: Vec<&str> = line.split(' ').collect();
        let number = words.iter().position(|word| *word == "gen").map(|at| at + 1);
        if let Some(generation) = number.and_then(|at| words.get_mut(at)) {
            *generation = "N";
        }
        if line.starts_with("Delete subvolume ") { "Delete subvolume".to_owned() } else { words.join(" ") }
    });
    lines.collect()
}

/// The day with the real programs on a mount of Linux, and with ours on a mount of ours.
fn sysadmin(bench: &Bench) -> Result<()> {
    let day = |name: &str, mounts: &str, path: String| -> Result<Finished> {
        let place = bench.scratch.dir(name)?;
        sparse_file(&place.join("disk.img"), 256 << 20)?;
        fs::create_dir(place.join("at"))?;
        let script = format!("{mounts}{DAY}");
        Run::new("sh").args(["-uc", &script]).within(&place).env("PATH", path).ok()
    };
    let linux = "mount_it() { mount -o loop,commit=1 disk.img at; }; umount_it() { umount at; };";
    let ours = "mount_it() { creamery mount disk.img at; }; umount_it() { creamery umount at; };";
    let bin = links(bench, &["creamery", "btrfs", "mkfs.btrfs", "fsck.btrfs"])?;
    let wanted = day("linux", linux, std::env::var("PATH").unwrap_or_default())?.stdout_text();
    let found = day("ours", ours, path_with(&bin))?.stdout_text();
    ensure!(
        as_compared(&wanted) == as_compared(&found),
        "--- btrfs-progs and Linux ---\n{wanted}\n--- ours ---\n{found}"
    );
    btrfs_check(&bench.scratch.path().join("ours/disk.img"))
}
