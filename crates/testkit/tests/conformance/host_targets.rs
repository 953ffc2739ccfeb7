//! Files of the host that a copy, an archive or a filesystem goes to: open files, those that the caller has few rights to (beside coreutils and
//! tar), and loop devices.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{Judge, LoopDevice, Run};

use crate::support::{JUDGED, expect_refusal, expect_untouched, inside, mkfs_empty, sparse_file};

pub(crate) fn cases() -> Vec<Case> {
    let with = |tools: &[&'static str]| {
        let tools = tools.iter().map(|tool| Judge::Tool(tool));
        std::iter::once(Judge::Program).chain(tools).collect::<Vec<_>>()
    };
    vec![
        Case::new("host-targets/open-files", &with(&["tar"]), open_files),
        Case::new(
            "host-targets/rights-as-coreutils",
            &[&with(&["setpriv", "tar"])[..], &[Judge::Root]].concat(),
            rights,
        ),
        Case::new(
            "host-targets/behind-loop-devices",
            &[&JUDGED[..], &["losetup", "sfdisk", "partx", "tar"].map(Judge::Tool)].concat(),
            behind_loop_devices,
        ),
    ]
}

/// An image with the file `/g`, which has the content of the file `g` beside it.
fn image_and_file(bench: &Bench) -> Result<(PathBuf, PathBuf)> {
    let (image, file) = (bench.scratch.file("disk.img"), bench.scratch.file("g"));
    mkfs_empty(bench.creamery(), &[], "128M", &image)?;
    fs::write(&file, "yy\n")?;
    bench.creamery().run(["cp"]).arg(&file).arg(inside(&image, "/g")).ok()?;
    Ok((image, file))
}

/// Whether it is an archive of the file.
fn is_archive(path: &Path) -> Result<bool> {
    Ok(Run::new("tar").args(["-t", "-f"]).arg(path).ok()?.stdout == b"g\n")
}

/// Scripts that write to `out`; `CP` copies the file to the place that is named behind it.
const OPEN_FILES: [&str; 8] = [
    "{ echo a; CP /dev/stdout; echo b; } > out",
    "{ echo a; CP /dev/stdout; echo b; } >> out",
    "{ echo a; CP /dev/fd/3; echo b; } 3> out >&3",
    "ln -s /proc/self/fd/3 link; { CP link; echo b >&3; } 3> out; test -L link",
    "ln out other; CP /dev/fd/3 3>> out; cmp out other",
    "exec 3> out; mv out moved; CP /dev/fd/3; mv moved out; echo b >&3",
    "exec 3> out; rm out; CP /dev/fd/3; cat /dev/fd/3 > new; mv new out",
    "{ printf '%200s' a; CP /proc/self/fd/1; } > out",
];

/// A name that leads to an open file means that file. It is opened again, cut and written, also when nothing else leads to it any more.
fn open_files(bench: &Bench) -> Result<()> {
    let (image, file) = image_and_file(bench)?;
    let source = inside(&image, "/g").to_string_lossy().into_owned();
    let ours = format!("{} cp {source}", bench.creamery().path().display());
    let theirs = format!("cp {}", file.display());
    for script in OPEN_FILES {
        let run = |name: &str, cp: &str| -> Result<Vec<u8>> {
            let dir = bench.scratch.dir(name)?;
            fs::write(dir.join("out"), "what was there before\n")?;
            Run::new("bash").args(["-ec", &script.replace("CP", cp)]).within(&dir).ok()?;
            let written = fs::read(dir.join("out"))?;
            fs::remove_dir_all(&dir)?;
            Ok(written)
        };
        let (have, want) = (run("ours", &ours)?, run("theirs", &theirs)?);
        ensure!(have == want, "{script}: {} instead of {}", have.escape_ascii(), want.escape_ascii());
    }
    // An archive goes the same way. Behind it is what was written from the old end on.
    let archive = bench.scratch.file("out.tar");
    let program = bench.creamery().path().display();
    for tar in ["tar -c -f /dev/stdout g", &format!("{program} tar -c -f /dev/stdout {source}")] {
        let script = format!("{{ printf '%20000s' a; {tar}; echo b; }} > out.tar");
        Run::new("bash").args(["-ec", &script]).within(bench.scratch.path()).ok()?;
        let written = fs::read(&archive)?;
        let is_one = written.ends_with(b"\0b\n") && written.len() == 20_002 && is_archive(&archive)?;
        ensure!(is_one, "{tar}: {} bytes", written.len());
    }
    // What must not be replaced is not written over either.
    let guarded = format!("{ours} /dev/fd/3 3<> {}", image.display());
    let refused = Run::new("bash").args(["-c", &guarded]).output()?;
    ensure!(refused.code == Some(1) && refused.stderr_text().contains("replace all of it"), "{refused}");
    let forced = format!("{program} cp -f {source} /dev/fd/3 3<> {}", image.display());
    let refused = Run::new("bash").args(["-c", &forced]).output()?;
    ensure!(refused.code == Some(1) && refused.stderr_text().contains("in use"), "{refused}");
    bench.creamery().run(["cat"]).arg(source).ok().map(drop)
}

/// An ordinary user copies where cp(1) can.
fn rights(bench: &Bench) -> Result<()> {
    let (image, file) = image_and_file(bench)?;
    let dir = bench.scratch.dir("dir")?;
    let own = dir.join("creamery");
    bench.creamery().copy_to(&own)?;
    let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
    for (path, mode) in [(&dir, 0o755), (&own, 0o755), (&image, 0o644), (&file, 0o644)] {
        set(path, mode)?;
    }
    let (dropbox, closed, sticky) = (dir.join("dropbox"), dir.join("closed"), dir.join("sticky"));
    for (path, mode) in [(&dropbox, 0o1733), (&closed, 0o755), (&sticky, 0o1777)] {
        fs::create_dir(path)?;
        set(path, mode)?;
    }
    let targets = [dropbox.join("new"), closed.join("everybodys"), sticky.join("everybodys")];
    let user = || Run::new("setpriv").args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
    for target in &targets {
        let (image, own) = (inside(&image, "/g"), own.as_os_str());
        let runs = [
            user().arg("cp").arg(&file).arg(target),
            user().arg(own).arg("cp").arg(&image).arg(target),
            user().arg(own).args(["tar", "-c", "-f"]).arg(target).arg(&image),
        ];
        for (at, run) in runs.into_iter().enumerate() {
            if target.ends_with("everybodys") {
                fs::write(target, "what was there before, and is longer")?;
                set(target, 0o666)?;
            }
            run.ok()?;
            let is_whole = if at == 2 { is_archive(target)? } else { fs::read(target)? == b"yy\n" };
            ensure!(is_whole, "{}", target.display());
            fs::remove_file(target)?;
        }
    }
    // Where the file is not everybody's, nothing happens to it.
    let precious = closed.join("precious");
    fs::write(&precious, "precious")?;
    let refused = user().arg(&own).arg("cp").arg(inside(&image, "/g")).arg(&precious).output()?;
    ensure!(refused.code == Some(1) && refused.stderr_text().contains("ermission"), "{refused}");
    ensure!(fs::read(&precious)? == b"precious", "{refused}");
    Ok(())
}

/// An image that is reached by a loop device is a file all the same, and may lie in the directory that it is to be made from.
fn behind_loop_devices(bench: &Bench) -> Result<()> {
    let source = bench.scratch.dir("source")?;
    let (own, disk) = (source.join("own.img"), source.join("disk.raw"));
    mkfs_empty(bench.creamery(), &[], "128M", &own)?;
    sparse_file(&disk, 200 << 20)?;
    Run::new("sfdisk").arg("-q").arg(&disk).input("label: gpt\nstart=1MiB, size=128MiB\n").ok()?;
    let whole = LoopDevice::attach(&own, false)?;
    let stacked = LoopDevice::attach(whole.path(), false)?;
    let parted = LoopDevice::attach_disk(&disk)?;
    let part = parted.partition(1)?;
    for (node, file, name) in
        [(whole.path(), &own, "own.img"), (stacked.path(), &own, "own.img"), (&*part, &disk, "disk.raw")]
    {
        let mkfs = bench.creamery().run(["mkfs", "-f", "--rootdir"]).arg(&source).arg(node);
        expect_untouched(file, || {
            expect_refusal(mkfs, &["lies in the directory", name, "put it elsewhere"])
        })?;
    }
    stacked.detach()?;
    let copy = bench.creamery().run(["cp"]).arg(&own).arg(inside(whole.path(), "/copy"));
    expect_refusal(copy, &["the image lies in the directory it is made from"])?;
    let archive = bench.scratch.file("own.tar");
    Run::new("tar").arg("-c").arg("-f").arg(&archive).args(["-C", "/proc/self", "comm"]).ok()?;
    fs::File::options().write(true).open(&archive)?.set_len(128 << 20)?;
    let packed = LoopDevice::attach(&archive, false)?;
    let mkfs = bench.creamery().run(["mkfs", "-f", "--from-tar"]).arg(&archive).arg(packed.path());
    expect_untouched(&archive, || expect_refusal(mkfs, &["the archive is the image itself"]))?;
    packed.detach()?;
    // Of another directory it is made.
    let other = bench.scratch.dir("other")?;
    bench.creamery().run(["mkfs", "-q", "-f", "--rootdir"]).arg(&other).arg(whole.path()).ok()?;
    parted.detach()?;
    whole.detach()
}
