//! Mounts whose server was killed, and what `mount` may clear away.

use anyhow::{Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{Finished, Judge, Run, btrfs_check};

use crate::support::JUDGED;
use crate::unprivileged::place;
use crate::unprivileged_first::BEGIN;

pub(crate) fn cases() -> Vec<Case> {
    let with_fuse = [Judge::Tool("setpriv"), Judge::Fuse, Judge::Fusermount];
    let judges = [&JUDGED[..], &with_fuse].concat();
    let traced = [&judges[..], &[Judge::Tool("strace")]].concat();
    vec![
        Case::new("dead-mounts/with-mounts-below", &judges, below),
        Case::new("dead-mounts/in-use", &judges, in_use),
        Case::new("dead-mounts/of-another-user", &judges, of_another_user),
        Case::new("dead-mounts/cleared-meanwhile", &traced, cleared_meanwhile),
    ]
}

/// Beside [`BEGIN`].
const WORDS: &str = r#"
two() { setpriv --reuid=2 --regid=2 --clear-groups -- "$@"; }
of() { for at in /proc/[0-9]*; do tr '\0' ' ' < $at/cmdline | grep -q -- "--announce.*$PWD/$1" && echo ${at#/proc/}; done 2>/dev/null; }
# The server of $1 is killed; with the other words its mount no longer answers.
die() { kill -9 $(of $1); shift; until ! "$@" 2>/dev/null; do :; done; }
mounts() { grep " $PWD/$1[ /]" /proc/self/mountinfo | wc -l; }
fails() { ! "$@"; }
./creamery mkfs -q -b 256M a.img
./creamery mkfs -q -b 256M b.img
nobody ./creamery mkfs -q -b 256M n.img
nobody ./creamery mkfs -q -b 256M n2.img
mkdir m
"#;

fn script(bench: &Bench, steps: &str) -> Result<Finished> {
    let (dir, _) = place(bench)?;
    let script = format!("{BEGIN}{WORDS}{steps}");
    let run = Run::new("unshare").args(["--mount", "--propagation", "private", "bash", "-c", &script]);
    let said = run.within(&dir).ok()?;
    for image in ["a.img", "b.img", "n.img", "n2.img"] {
        btrfs_check(&dir.join(image))?;
    }
    Ok(said)
}

/// The lines of the program, each with all of these words.
fn expect_lines(said: &Finished, wanted: &[&[&str]]) -> Result<()> {
    let errors = said.stderr_text();
    let lines: Vec<&str> = errors.lines().filter(|line| line.starts_with("creamery: ")).collect();
    let is_said = |(line, words): (&&str, &&[&str])| words.iter().all(|word| line.contains(word));
    ensure!(lines.len() == wanted.len() && lines.iter().zip(wanted).all(is_said), "{lines:#?}");
    Ok(())
}

/// umount(8) refuses a mount with others below it. So does `mount`, for what it would clear away; `umount -l` takes them along.
const BELOW: &str = r#"
./creamery mount $PWD/a.img m
mkdir m/sub m/t
./creamery mount $PWD/b.img m/sub
mount -t tmpfs none m/t
echo precious > m/t/x
./creamery sync m
die a.img ls m
fails umount -i m
fails ./creamery mount $PWD/a.img m
fails ./creamery umount m
mounts m
./creamery umount -l m
mounts m
./creamery mount $PWD/a.img m
ls m
./creamery umount m
echo user_allow_other > fuse.conf
mount --bind fuse.conf /etc/fuse.conf
nobody ./creamery mount -o allow_other $PWD/n.img mnt
nobody mkdir mnt/sub
nobody ./creamery mount $PWD/n2.img mnt/sub
die n.img ls mnt
fails nobody ./creamery mount $PWD/n.img mnt
fails nobody ./creamery umount mnt
mounts mnt
nobody ./creamery umount -l mnt
mounts mnt
nobody ./creamery mount $PWD/n.img mnt
nobody ./creamery umount mnt
"#;

fn below(bench: &Bench) -> Result<()> {
    let said = script(bench, BELOW)?;
    ensure!(said.stdout_text() == "3\n0\nsub\nt\n2\n0\n", "{said}");
    ensure!(said.stderr_text().contains("target is busy"), "{said}");
    let remedy = ["died", "lie below it", "unmount these first", "creamery umount -l m"];
    let root = ["/m/sub (fuse.creamery ", "/b.img), ", "/m/t (tmpfs none)"];
    let user = ["/mnt/sub (fuse.creamery ", "/n2.img)"];
    expect_lines(
        &said,
        &[
            &[&remedy[..], &root].concat(),
            &[&["umount:", "lie below it", "-l detaches it and these"][..], &root].concat(),
            &[&remedy[..], &user].concat(),
            &[&["umount:", "lie below it", "-l detaches it and these"][..], &user].concat(),
        ],
    )
}

/// Open files and working directories keep no dead mount in its place.
const IN_USE: &str = r#"
./creamery mount $PWD/a.img m
exec 7< m
die a.img ls m
./creamery mount $PWD/a.img m
ls m
./creamery umount m
exec 7<&-
nobody ./creamery mount $PWD/n.img mnt
nobody bash -c 'exec 7< mnt; kill -9 $0; until ! ls mnt 2>/dev/null; do :; done; ./creamery mount $PWD/n.img mnt' $(of n.img)
nobody ls mnt
nobody ./creamery umount mnt
"#;

fn in_use(bench: &Bench) -> Result<()> {
    let said = script(bench, IN_USE)?;
    expect_lines(
        &said,
        &[
            &["was still the mount of", "/a.img", "unmounted"],
            &["was still the mount of", "/n.img", "unmounted"],
        ],
    )
}

/// Without `allow_other` a mount lets nobody else in, root neither, so its server may be alive or dead. The remedy works.
const OF_ANOTHER_USER: &str = r#"
nobody ./creamery mount $PWD/n.img mnt
fails ./creamery mount $PWD/a.img mnt
fails two ./creamery mount $PWD/a.img mnt
die n.img nobody ls mnt
fails ./creamery mount $PWD/a.img mnt
fails two ./creamery mount $PWD/a.img mnt
fails ./creamery umount mnt
./creamery mount $PWD/a.img mnt
./creamery umount mnt
"#;

fn of_another_user(bench: &Bench) -> Result<()> {
    let said = script(bench, OF_ANOTHER_USER)?;
    let closed = ["mount: mnt: only user 65534 may access this mount of", "/n.img", "`creamery umount mnt`"];
    let closed = &closed[..];
    expect_lines(&said, &[closed, closed, closed, closed, &["umount:", "is unmounted, but"]])?;
    let errors = said.stderr_text();
    for words in ["lsattr", "run as root", "check the"] {
        ensure!(!errors.contains(words), "{said}");
    }
    let of_mount = errors.lines().filter(|line| line.contains("may access this mount of"));
    ensure!(of_mount.into_iter().all(|line| !line.contains("died")), "{said}");
    Ok(())
}

/// A second `mount` clears the dead mount away, and mounts, while the first one is stopped: behind each file that it opens, and before it runs
/// fusermount3. What lives stays.
const CLEARED_MEANWHILE: &str = r#"
traced() {
    rm -f trace
    touch trace
    strace -qq -o trace "${@}" &
    tracer=$!
    until grep -q 'stopped by SIGSTOP' trace || ! kill -0 $tracer 2>/dev/null; do :; done
    grep -q 'stopped by SIGSTOP' trace
}
resume() { kill -CONT $(cat /proc/$tracer/task/$tracer/children); wait $tracer; }
rounds=0
# A program that is linked to musl opens with open(2), too.
for call in openat '?open'; do
    for n in {1..100}; do
        ./creamery mount $PWD/a.img m
        die a.img ls m
        traced -e trace=$call -e inject=$call:signal=STOP:when=$n ./creamery mount $PWD/b.img m || break
        ./creamery mount $PWD/a.img m
        exec 7< m
        resume
        grep -q " $PWD/m .*$PWD/a.img" /proc/self/mountinfo || { echo "gone at $call $n"; tail -n 5 trace; }
        exec 7<&-
        until test $(mounts m) = 0; do ./creamery umount m; done
        rounds=$((rounds + 1))
    done
    wait $tracer
    until test $(mounts m) = 0; do ./creamery umount m; done
done
test $rounds -gt 3 && echo all
nobody ./creamery mount $PWD/n.img mnt
die n.img nobody ls mnt
traced -e trace=pipe2 -e inject=pipe2:signal=STOP:when=1 setpriv --reuid=65534 --regid=65534 --clear-groups -- ./creamery mount $PWD/n.img mnt
nobody fusermount3 -u mnt
resume
nobody ls mnt
nobody ./creamery umount mnt
echo cleared
"#;

fn cleared_meanwhile(bench: &Bench) -> Result<()> {
    let said = script(bench, CLEARED_MEANWHILE)?;
    ensure!(said.stdout_text() == "all\ncleared\n", "{said}");
    Ok(())
}
