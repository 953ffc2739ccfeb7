//! The first steps of an ordinary user: an image of their own, a mount that says what they may not, a server that was killed.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{Judge, LoopMount, Run, btrfs_check};

use crate::support::JUDGED;
use crate::unprivileged::{NOBODY, as_nobody, place};

pub(crate) fn cases() -> Vec<Case> {
    let with_fuse = [Judge::Tool("setpriv"), Judge::Fuse, Judge::Fusermount];
    let judges = [&JUDGED[..], &with_fuse].concat();
    vec![
        Case::new("unprivileged/first-steps", &judges, first_steps),
        Case::new("unprivileged/advice-about-the-root-directory", &judges, advice),
        Case::new("unprivileged/without-the-device", &judges, without_the_device),
        Case::new("mkfs/owner-of-an-empty-root", &judges, owners),
    ]
}

/// A mount namespace in which everybody may open `/dev/fuse`.
pub(crate) const BEGIN: &str = r#"
set -e
mkdir dev && mount -t tmpfs -o mode=755 tmpfs dev
mknod dev/fuse c 10 229 && chmod 666 dev/fuse && mount --bind dev/fuse /dev/fuse
nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups -- "$@"; }
server() { for at in /proc/[0-9]*; do tr '\0' ' ' < $at/cmdline | grep -q -- "--announce.*$PWD/disk.img" && echo ${at#/proc/}; done 2>/dev/null; }
export XDG_STATE_HOME=$PWD/state
nobody mkdir mnt state
"#;

/// Made, mounted and written; the server is killed, and the same command mounts again.
const STEPS: &str = r#"
nobody ./creamery mkfs -b 256M disk.img | grep Owner
nobody ./creamery mount $PWD/disk.img mnt
nobody sh -c "echo durable > mnt/x"
nobody ./creamery sync mnt
kill -9 $(server)
until ! nobody ls mnt 2>/dev/null; do :; done
nobody ./creamery mount $PWD/disk.img mnt
nobody cat mnt/x
nobody ./creamery umount mnt
ls state/creamery
# Root clears it away, too; another user does not.
./creamery mount -o allow_other $PWD/disk.img mnt
kill -9 $(server)
until ! ls mnt 2>/dev/null; do :; done
nobody ./creamery mount $PWD/disk.img mnt && exit 9
./creamery mount $PWD/disk.img mnt
cat mnt/x
./creamery umount mnt
# A root directory that is root's is said.
nobody ./creamery mkfs -q --owner 0:0 -b 256M roots.img
nobody ./creamery mount roots.img mnt
nobody touch mnt/x && exit 9
nobody ./creamery umount mnt
for way in fakeroot uid=65534,gid=65534 ro; do
    nobody ./creamery mount -o $way roots.img mnt
    nobody ./creamery umount mnt
done
"#;

fn first_steps(bench: &Bench) -> Result<()> {
    let (dir, _) = place(bench)?;
    let script = format!("{BEGIN}{STEPS}");
    let said = Run::new("unshare")
        .args(["--mount", "--propagation", "private", "bash", "-c", &script])
        .within(&dir)
        .ok()?;
    let out = said.stdout_text();
    let owner = "Owner        65534:65534, of the empty root directory (--owner 0:0 makes it root's)\n";
    ensure!(out == format!("{owner}durable\ndurable\n"), "{said}");
    let errors = said.stderr_text();
    let notes: Vec<&str> = errors.lines().filter(|line| line.starts_with("creamery: ")).collect();
    let wanted = [
        &["was still the mount of", "died", "unmounted"][..],
        &["mount:", "died", "user 0 or root can unmount it: `creamery umount mnt`"],
        &["was still the mount of", "died", "unmounted"],
        &[
            "user 65534 may not write to its root directory (owner 0:0,",
            "fakeroot",
            "uid=65534",
            "mkfs --owner",
        ],
    ];
    let is_said = |(line, words): (&&str, &&[&str])| words.iter().all(|word| line.contains(word));
    ensure!(notes.len() == wanted.len() && notes.iter().zip(&wanted).all(is_said), "{notes:#?}");
    btrfs_check(&dir.join("disk.img"))?;
    let mount = LoopMount::mount(&dir.join("disk.img"), &bench.scratch.file("kernel"), "ro")?;
    let root = mount.dir().metadata()?;
    ensure!((root.uid(), root.gid(), root.mode() & 0o7777) == (NOBODY, NOBODY, 0o755), "{root:?}");
    ensure!(std::fs::read(mount.dir().join("x"))? == b"durable\n", "what the user wrote");
    mount.unmount()
}

/// Each way out that `mount` names for a root directory that the mounter may not write to, followed: a file is made, and nothing more is said.
const ADVICE: &str = r#"
works() { nobody touch mnt/x; nobody ./creamery umount mnt; }
closed() {
    nobody ./creamery mount "$@" mnt 2> said
    cat said >&2
    if nobody touch mnt/x 2>/dev/null; then exit 9; fi
}
follow() { nobody sh -c "$(sed -n 's/.*`\(chmod [^`]*\)`.*/\1/p' said)"; works; }
nobody ./creamery mkfs -q --owner 0:0 -b 256M roots.img
closed roots.img
nobody ./creamery umount mnt
for way in fakeroot uid=65534,gid=65534; do
    nobody ./creamery mount -o $way roots.img mnt
    works
    nobody ./creamery rm roots.img:/x
done
nobody ./creamery chmod 555 roots.img:/
closed -o uid=65534,gid=65534 roots.img
follow
nobody ./creamery mkfs -q -f --owner 65534:65534 -b 256M roots.img
nobody ./creamery mount roots.img mnt
works
nobody ./creamery mkfs -q -b 256M disk.img
for mode in 555 600 077; do
    nobody ./creamery chmod $mode disk.img:/
    closed disk.img
    follow
    nobody ./creamery chmod $mode disk.img:/
    nobody ./creamery mount -o fakeroot disk.img mnt
    works
done
"#;

fn advice(bench: &Bench) -> Result<()> {
    let (dir, _) = place(bench)?;
    let script = format!("{BEGIN}{ADVICE}");
    let run = Run::new("unshare").args(["--mount", "--propagation", "private", "bash", "-c", &script]);
    let said = run.within(&dir).ok()?;
    let errors = said.stderr_text();
    let notes: Vec<&str> = errors.lines().collect();
    let own = &["owner 65534:65534", "`chmod u+rwx mnt`", "fakeroot"][..];
    let wanted = [&["owner 0:0", "fakeroot", "uid=65534,gid=65534", "mkfs --owner"][..], own, own, own, own];
    let is_said = |(line, words): (&&str, &&[&str])| words.iter().all(|word| line.contains(word));
    ensure!(notes.len() == wanted.len() && notes.iter().zip(&wanted).all(is_said), "{notes:#?}");
    let is_owners = |line: &&str| !line.contains("-o uid=") && !line.contains("--owner");
    ensure!(notes[1..].iter().all(is_owners), "{notes:#?}");
    btrfs_check(&dir.join("disk.img"))
}

/// Without a device that can be opened there is one reason and one remedy.
fn without_the_device(bench: &Bench) -> Result<()> {
    let (dir, _) = place(bench)?;
    as_nobody(&dir).args(["mkfs", "-q", "-b", "256M"]).arg(dir.join("disk.img")).ok()?;
    std::fs::create_dir(dir.join("mnt"))?;
    std::os::unix::fs::chown(dir.join("mnt"), Some(NOBODY), Some(NOBODY))?;
    let asked = |user: &str, device: &str| {
        let script = format!(
            "set -e; mount --bind /dev/shm /mnt; mount -t tmpfs -o mode=755 tmpfs /dev; mkdir /dev/shm; mount --bind /mnt /dev/shm; cd $PWD; mknod -m 666 /dev/null c 1 3; {device}; {user} ./creamery mount disk.img mnt"
        );
        Run::new("unshare")
            .args(["--mount", "--propagation", "private", "bash", "-c", &script])
            .within(&dir)
            .output()
    };
    let nobody = "setpriv --reuid=65534 --regid=65534 --clear-groups --";
    for user in ["", nobody] {
        for (device, words) in [
            (":", &["there is no /dev/fuse", "modprobe fuse", "--device /dev/fuse"][..]),
            ("mknod -m 666 /dev/fuse c 1 5", &["there is no FUSE behind /dev/fuse", "modprobe fuse"]),
        ] {
            let said = asked(user, device)?;
            let text = said.stderr_text();
            ensure!(said.code == Some(1) && text.lines().count() == 1, "{said}");
            ensure!(words.iter().all(|word| text.contains(word)), "{said}");
            ensure!(
                !text.contains("check the path") && text.matches("; ").count() == 1,
                "one remedy: {said}"
            );
        }
    }
    Ok(())
}

fn owner_of_root(image: &Path, bench: &Bench) -> Result<(u32, u32)> {
    btrfs_check(image)?;
    let mount = LoopMount::mount(image, &bench.scratch.dir("kernel")?, "ro")?;
    let root = mount.dir().metadata()?;
    mount.unmount()?;
    Ok((root.uid(), root.gid()))
}

/// What the root directory belongs to: root's `mkfs` as that of btrfs-progs, the source's owner where there is a source, `--owner` before all.
fn owners(bench: &Bench) -> Result<()> {
    let (dir, _) = place(bench)?;
    let source = bench.scratch.dir("source")?;
    std::os::unix::fs::chown(&source, Some(1234), Some(77))?;
    std::fs::write(source.join("file"), "text")?;
    let archive = dir.join("source.tar");
    Run::new("tar").args(["-c", "-f"]).arg(&archive).arg("-C").arg(&source).arg("file").ok()?;
    let rootdir = ["--rootdir".as_ref(), source.as_os_str()];
    let from_tar = ["--from-tar".as_ref(), archive.as_os_str()];
    let chosen = ["--owner".as_ref(), "5:6".as_ref()];
    for (as_root, words, wanted) in [
        (true, vec![], (0, 0)),
        (false, vec![], (NOBODY, NOBODY)),
        (true, chosen.to_vec(), (5, 6)),
        (false, chosen.to_vec(), (5, 6)),
        (false, rootdir.to_vec(), (1234, 77)),
        (false, from_tar.to_vec(), (0, 0)),
        (false, [rootdir, chosen].concat(), (5, 6)),
        (false, [from_tar, chosen].concat(), (5, 6)),
    ] {
        let image = dir.join("owned.img");
        let run = if as_root { bench.creamery().run(["mkfs"]) } else { as_nobody(&dir).arg("mkfs") };
        run.args(["-q", "-b", "256M"]).args(&words).arg(&image).ok()?;
        let found = owner_of_root(&image, bench)?;
        ensure!(found == wanted, "{words:?} as root: {as_root}: {found:?}");
        std::fs::remove_file(&image)?;
    }
    Ok(())
}
