//! Files of the host as targets of a copy, an archive or a filesystem: open files, files with few permissions (compared with coreutils and
//! tar), and loop devices.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, Judge, LoopDevice, Run};

use crate::support::{
    JUDGED, MOUNTED, expect_failure, expect_refusal, expect_untouched, inside, mkfs_empty, sparse_file,
};

pub(crate) fn cases() -> Vec<Case> {
    let with = |tools: &[&'static str]| {
        let tools = tools.iter().map(|tool| Judge::Tool(tool));
        std::iter::once(Judge::Program).chain(tools).collect::<Vec<_>>()
    };
    vec![
        Case::new("host-targets/open-files", &with(&["tar"]), open_files),
        Case::new(
            "host-targets/pipes-and-devices",
            &[&MOUNTED[..], &[Judge::Tool("tar")]].concat(),
            pipes_and_devices,
        ),
        Case::new(
            "host-targets/rights-as-coreutils",
            &[&with(&["setpriv", "tar"])[..], &[Judge::Root]].concat(),
            rights,
        ),
        Case::new(
            "host-targets/what-is-protected",
            &[&MOUNTED[..], &["setpriv", "setfacl", "getfacl", "chattr", "tar"].map(Judge::Tool)].concat(),
            protected,
        ),
        Case::new(
            "host-targets/behind-loop-devices",
            &[&JUDGED[..], &["losetup", "sfdisk", "partx", "tar"].map(Judge::Tool)].concat(),
            behind_loop_devices,
        ),
    ]
}

/// An image with the file `/g`, whose content is that of the file `g` beside the image.
fn image_and_file(bench: &Bench) -> Result<(PathBuf, PathBuf)> {
    let (image, file) = (bench.scratch.file("disk.img"), bench.scratch.file("g"));
    mkfs_empty(bench.creamery(), &[], "128M", &image)?;
    fs::write(&file, "yy\n")?;
    bench.creamery().run(["cp"]).arg(&file).arg(inside(&image, "/g")).ok()?;
    Ok((image, file))
}

/// Whether the path is an archive of the file.
fn is_archive(path: &Path) -> Result<bool> {
    Ok(Run::new("tar").args(["-t", "-f"]).arg(path).ok()?.stdout == b"g\n")
}

/// Scripts that write to `out`; `CP` copies the file to the place behind it.
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

/// A name that leads to an open file means that file. The file is opened again, truncated and written, also if it has no other name any
/// more.
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
    // An archive is written in the same way. Behind it comes the data written from the old end on.
    let archive = bench.scratch.file("out.tar");
    let program = bench.creamery().path().display();
    for tar in ["tar -c -f /dev/stdout g", &format!("{program} tar -c -f /dev/stdout {source}")] {
        let script = format!("{{ printf '%20000s' a; {tar}; echo b; }} > out.tar");
        Run::new("bash").args(["-ec", &script]).within(bench.scratch.path()).ok()?;
        let written = fs::read(&archive)?;
        let is_one = written.ends_with(b"\0b\n") && written.len() == 20_002 && is_archive(&archive)?;
        ensure!(is_one, "{tar}: {} bytes", written.len());
    }
    // A file that must not be replaced is not written over either.
    let guarded = format!("{ours} /dev/fd/3 3<> {}", image.display());
    let refused = Run::new("bash").args(["-c", &guarded]).output()?;
    ensure!(refused.code == Some(1) && refused.stderr_text().contains("would be overwritten"), "{refused}");
    let forced = format!("{program} cp -f {source} /dev/fd/3 3<> {}", image.display());
    let refused = Run::new("bash").args(["-c", &forced]).output()?;
    ensure!(refused.code == Some(1) && refused.stderr_text().contains("in use"), "{refused}");
    bench.creamery().run(["cat"]).arg(source).ok().map(drop)
}

/// An ordinary user copies wherever cp(1) can.
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
    // In a directory without list permission, a file is copied by its own name, and so is a tree.
    let tree = inside(&image, "/tree");
    bench.creamery().run(["mkdir"]).arg(&tree).ok()?;
    bench.creamery().run(["cp"]).arg(&file).arg(&tree).ok()?;
    for (words, source, copy) in
        [("-p", inside(&image, "/g"), "g"), ("-a", tree.clone(), "tree/g"), ("-r", tree, "tree/g")]
    {
        user().arg(&own).args(["cp", words]).arg(source).arg(&dropbox).ok()?;
        ensure!(fs::read(dropbox.join(copy))? == b"yy\n", "{words} {copy}");
        fs::remove_file(dropbox.join(copy))?;
    }
    as_they_were(bench, &user, &own, &image)?;
    // A file without write permission for the user is not touched.
    let precious = closed.join("precious");
    fs::write(&precious, "precious")?;
    let refused = user().arg(&own).arg("cp").arg(inside(&image, "/g")).arg(&precious).output()?;
    ensure!(refused.code == Some(1) && refused.stderr_text().contains("ermission"), "{refused}");
    ensure!(fs::read(&precious)? == b"precious", "{refused}");
    Ok(())
}

/// Open images, disks with any content, and permissions of users with another name of a file.
fn protected(bench: &Bench) -> Result<()> {
    let (image, file) = image_and_file(bench)?;
    let dir = bench.scratch.dir("dir")?;
    let own = dir.join("creamery");
    bench.creamery().copy_to(&own)?;
    let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
    let sticky = dir.join("sticky");
    fs::create_dir(&sticky)?;
    for (path, mode) in [(&dir, 0o755), (&own, 0o755), (&image, 0o644), (&sticky, 0o1777)] {
        set(path, mode)?;
    }
    let user =
        || Run::new("setpriv").args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(&own);
    // An image of root that everybody may write, in a directory where it cannot be replaced.
    let others = sticky.join("g");
    mkfs_empty(bench.creamery(), &[], "128M", &others)?;
    for mode in [0o666, 0o622] {
        set(&others, mode)?;
        for words in [&["cp"][..], &["tar", "-c", "-f"]] {
            let run = user().args(words);
            let run = if words.len() == 1 {
                run.arg(inside(&image, "/g")).arg(&others)
            } else {
                run.arg(&others).arg(inside(&image, "/g"))
            };
            expect_untouched(&others, || {
                expect_refusal(run, &[if mode == 0o666 { "would be overwritten" } else { "cannot be read" }])
            })?;
        }
        let mounted = FuseMount::mount(bench.creamery(), &others, &bench.scratch.file("fuse"), "")?;
        for words in [&["cp", "-rf"][..], &["cp", "-f"], &["cp", "-a", "-f"]] {
            let source = if words[1] == "-rf" { "/" } else { "/g" };
            let target = if words[1] == "-rf" { &sticky } else { &others };
            let run = user().args(words).arg(inside(&image, source)).arg(target);
            expect_untouched(&others, || expect_failure(run, &["in use"]).map(drop))?;
        }
        mounted.unmount()?;
    }
    bench.creamery().run(["check"]).arg(&others).ok()?;
    for words in [&["cp"][..], &["cp", "-r"], &["cp", "-a"]] {
        let source = if words.len() == 1 { "/g" } else { "/" };
        let run = bench.creamery().run(words).arg(inside(&image, source)).arg(&sticky);
        expect_untouched(&others, || expect_failure(run, &["would be overwritten", "--force"]).map(drop))?;
    }
    fs::remove_file(&others)?;
    into_directories(bench, &image)?;
    // A disk with a filesystem of another kind.
    let disk = bench.scratch.file("disk.raw");
    sparse_file(&disk, 16 << 20)?;
    let node = LoopDevice::attach(&disk, false)?;
    std::os::unix::fs::FileExt::write_all_at(
        &fs::File::options().write(true).open(&disk)?,
        &[0x53, 0xef],
        1080,
    )?;
    let run = bench.creamery().run(["cp"]).arg(inside(&image, "/g")).arg(node.path());
    expect_untouched(&disk, || expect_refusal(run, &["would be overwritten"]))?;
    node.detach()?;
    rights_of_other_names(&user, &own, (&image, &file))
}

/// A copy with owner and mode gives no permissions through another name of the file, or through an entry in its ACL.
fn rights_of_other_names(user: &dyn Fn() -> Run, own: &Path, (image, file): (&Path, &Path)) -> Result<()> {
    use std::os::unix::fs::MetadataExt;
    let ours = || Run::new(own);
    let dir = own.parent().context("a directory")?;
    // A name in another user's directory leads to a file with a second name: a copy with owner and mode is a new file.
    let users = dir.join("users");
    fs::create_dir(&users)?;
    let (target, second) = (users.join("out"), users.join("second"));
    for words in [&["cp", "-a"][..], &["cp", "-p"]] {
        fs::write(&target, "theirs")?;
        fs::hard_link(&target, &second)?;
        for path in [&users, &target] {
            std::os::unix::fs::chown(path, Some(65534), Some(65534))?;
        }
        ours().args(words).arg(inside(image, "/g")).arg(&target).ok()?;
        ensure!(fs::read(&second)? == b"theirs" && second.metadata()?.nlink() == 1, "{words:?}");
        ensure!(target.metadata()?.uid() == file.metadata()?.uid(), "{words:?}");
        fs::remove_file(&target)?;
        fs::remove_file(&second)?;
    }
    // An ACL of the replaced file gives no access to a copy without ACL.
    fs::write(&target, "theirs")?;
    Run::new("setfacl").args(["-m", "user:65534:rw"]).arg(&target).ok()?;
    let copy = format!("{} cp -a {}:/g /dev/fd/3 3<> {}", own.display(), image.display(), target.display());
    Run::new("bash").args(["-ec", &copy]).ok()?;
    let acl =
        Run::new("getfacl").args(["--omit-header", "--skip-base", "--absolute-names"]).arg(&target).ok()?;
    ensure!(fs::read(&target)? == b"yy\n" && acl.stdout.trim_ascii().is_empty(), "{acl}");
    // Attributes that cannot be set on another user's file cause an error, which says that the content is written.
    let everybodys = dir.join("everybodys");
    fs::write(&everybodys, "what was there before")?;
    fs::set_permissions(&everybodys, fs::Permissions::from_mode(0o666))?;
    let run = user().args(["cp", "-p"]).arg(inside(image, "/g")).arg(&everybodys);
    expect_refusal(run, &["the content is written, but not all attributes"])?;
    ensure!(fs::read(&everybodys)? == b"yy\n", "the content is written");
    Ok(())
}

/// A copy into a directory takes a name in it, and changes no other name of the file there. An archive keeps the permissions of the file that it replaces, as a
/// copy does.
fn into_directories(bench: &Bench, image: &Path) -> Result<()> {
    let dir = bench.scratch.dir("into")?;
    let (target, second, source) = (dir.join("g"), dir.join("second"), inside(image, "/g"));
    fs::write(&target, "theirs")?;
    fs::hard_link(&target, &second)?;
    bench.creamery().run(["cp"]).arg(&source).arg(&dir).ok()?;
    ensure!(fs::read(&second)? == b"theirs", "its other name has other content");
    // A target that is no regular file is replaced: no wait for a reader of a pipe, and no write through a link.
    for made in ["mkfifo", "ln -s second"] {
        fs::remove_file(&target)?;
        Run::new("bash").args(["-ec", &format!("cd {}; {made} g", dir.display())]).ok()?;
        bench.creamery().run(["cp"]).arg(&source).arg(&dir).ok()?;
        ensure!(fs::symlink_metadata(&target)?.is_file() && fs::read(&target)? == b"yy\n", "{made}");
        ensure!(fs::read(&second)? == b"theirs", "{made}");
    }
    fs::remove_file(&target)?;
    let archive = dir.join("acl.tar");
    for words in [&["cp"][..], &["tar", "-c", "-f"]] {
        fs::write(&archive, "")?;
        let rights = format!(
            "chown 1234:77 {0}; chmod 600 {0}; setfacl -m u:1235:rw {0}; getfacl -n -p {0}",
            archive.display()
        );
        let before = Run::new("bash").args(["-ec", &rights]).ok()?.stdout;
        let run = bench.creamery().run(words);
        let run =
            if words.len() == 1 { run.arg(&source).arg(&archive) } else { run.arg(&archive).arg(&source) };
        run.ok()?;
        let after = Run::new("getfacl").args(["-n", "-p"]).arg(&archive).ok()?.stdout;
        ensure!(before == after, "{words:?}: {}", String::from_utf8_lossy(&after));
    }
    // In an append-only directory, which keeps all names, nothing is left beside the file.
    Run::new("chattr").arg("+a").arg(&dir).ok()?;
    let done = bench.creamery().run(["tar", "-c", "-f"]).arg(&archive).arg(&source).ok();
    Run::new("chattr").arg("-a").arg(&dir).ok()?;
    done?;
    let names = fs::read_dir(&dir)?.map(|entry| Ok(entry?.file_name())).collect::<Result<Vec<_>>>()?;
    ensure!(names.len() == 2 && is_archive(&archive)?, "{names:?}");
    Ok(())
}

/// An existing file stays the same inode, or stays unchanged, where cp(1) does so.
fn as_they_were(bench: &Bench, user: &dyn Fn() -> Run, own: &Path, image: &Path) -> Result<()> {
    use std::os::unix::fs::MetadataExt;
    let dir = bench.scratch.dir("dir/users")?;
    std::os::unix::fs::chown(&dir, Some(65534), Some(65534))?;
    let (file, other) = (dir.join("file"), dir.join("other"));
    // The owner of the file, its mode, whether it has another name, and whether it is the same inode afterwards; `None` if the command refuses
    // it.
    let rows: [(u32, u32, bool, Option<bool>); 5] = [
        (65534, 0o644, false, Some(false)),
        (65534, 0o644, true, Some(true)),
        (0, 0o666, false, Some(true)),
        (65534, 0o444, false, None),
        (0, 0o644, false, None),
    ];
    for (owner, mode, is_linked, is_same) in rows {
        for words in [&["cp"][..], &["tar", "-c", "-f"]] {
            fs::write(&file, "what was there before, and is longer")?;
            if is_linked {
                fs::hard_link(&file, &other)?;
            }
            std::os::unix::fs::chown(&file, Some(owner), Some(owner))?;
            fs::set_permissions(&file, fs::Permissions::from_mode(mode))?;
            let before = file.metadata()?;
            let run = user().arg(own).args(words);
            let run = match words.len() {
                1 => run.arg(inside(image, "/g")).arg(&file),
                _ => run.arg(&file).arg(inside(image, "/g")),
            };
            let done = run.output()?;
            let (after, what) = (file.metadata()?, format!("{words:?} to {mode:o} of {owner}: {done}"));
            ensure!(done.code == Some(i32::from(is_same.is_none())), "{what}");
            let is_kept =
                (after.uid(), after.mode(), after.nlink()) == (before.uid(), before.mode(), before.nlink());
            ensure!(is_kept && is_same.is_none_or(|same| same == (before.ino() == after.ino())), "{what}");
            ensure!(is_same.is_some() || fs::read(&file)?.starts_with(b"what was there"), "{what}");
            fs::remove_file(&file)?;
            if is_linked {
                fs::remove_file(&other)?;
            }
        }
    }
    Ok(())
}

/// Scripts whose standard output is that of cp(1) with `CP`, which copies the file to the place behind it.
const PIPES: [&str; 5] = [
    "CP /dev/stdout | cat",
    "CP /proc/self/fd/1 | cat",
    "mkfifo pipe; cat pipe & CP pipe; wait; test -p pipe",
    "CP /dev/null; CP /dev/null; test -c /dev/null; stat -c %a /dev/null",
    "mkfifo pipe; exec 3<> pipe; echo kept >&3; CP pipe; exec 4< pipe 3>&-; cat <&4",
];

/// Pipes and devices are written to: holes become zeros, and attributes are not changed.
fn pipes_and_devices(bench: &Bench) -> Result<()> {
    let (image, file) = image_and_file(bench)?;
    let source = inside(&image, "/g").to_string_lossy().into_owned();
    let program = bench.creamery().path().display();
    for script in PIPES {
        let run = |cp: &str| -> Result<Vec<u8>> {
            let dir = bench.scratch.dir("pipes")?;
            let done = Run::new("bash").args(["-ec", &script.replace("CP", cp)]).within(&dir).ok()?;
            fs::remove_dir_all(&dir)?;
            Ok(done.stdout)
        };
        let want = run(&format!("cp {}", file.display()))?;
        for words in ["cp", "cp -a"] {
            let have = run(&format!("{program} {words} {source}"))?;
            ensure!(have == want, "{script}: {} instead of {}", have.escape_ascii(), want.escape_ascii());
        }
    }
    let holes = bench.scratch.file("holes");
    Run::new("bash")
        .args(["-ec", "truncate -s 1M holes; echo x >> holes; truncate -s 3M holes"])
        .within(bench.scratch.path())
        .ok()?;
    bench.creamery().run(["cp"]).arg(&holes).arg(inside(&image, "/holes")).ok()?;
    let piped = format!("{program} cp {}:/holes /dev/stdout | cmp - {}", image.display(), holes.display());
    Run::new("bash").args(["-ec", &piped]).ok()?;
    // A disk, too. If it holds an image, the error says so; if the image is in use, no option overwrites it.
    let disk = bench.scratch.file("disk.raw");
    sparse_file(&disk, 130 << 20)?;
    let node = LoopDevice::attach(&disk, false)?;
    bench.creamery().run(["cp"]).arg(inside(&image, "/holes")).arg(node.path()).ok()?;
    Run::new("cmp").args(["-n", "3145728"]).arg(&holes).arg(&disk).ok()?;
    bench.creamery().run(["tar", "-c", "-f"]).arg(node.path()).arg(inside(&image, "/g")).ok()?;
    ensure!(is_archive(&disk)?, "{} holds no archive", disk.display());
    bench.creamery().run(["mkfs", "-q", "-f"]).arg(node.path()).ok()?;
    let writers = |force: &'static [&'static str]| {
        let cp = bench.creamery().run(["cp"]).args(force).arg(inside(&image, "/g")).arg(node.path());
        let tar =
            bench.creamery().run(["tar", "-c"]).args(if force.is_empty() { &[][..] } else { &["--force"] });
        [cp, tar.arg("-f").arg(node.path()).arg(inside(&image, "/g"))]
    };
    for run in writers(&[]) {
        expect_untouched(&disk, || expect_refusal(run, &["would be overwritten"]))?;
    }
    let mounted = FuseMount::mount(bench.creamery(), node.path(), &bench.scratch.file("fuse"), "ro")?;
    for run in writers(&["-f"]) {
        expect_untouched(&disk, || expect_refusal(run, &["in use"]))?;
    }
    mounted.unmount()?;
    for run in writers(&["-f"]) {
        run.ok()?;
    }
    node.detach()
}

/// An image behind a loop device is a file all the same, and may lie in its own source directory.
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
            expect_refusal(mkfs, &["lies in its source directory", name, "put it elsewhere"])
        })?;
    }
    stacked.detach()?;
    let copy = bench.creamery().run(["cp"]).arg(&own).arg(inside(whole.path(), "/copy"));
    expect_refusal(copy, &["the image lies in its source directory"])?;
    let archive = bench.scratch.file("own.tar");
    Run::new("tar").arg("-c").arg("-f").arg(&archive).args(["-C", "/proc/self", "comm"]).ok()?;
    fs::File::options().write(true).open(&archive)?.set_len(128 << 20)?;
    let packed = LoopDevice::attach(&archive, false)?;
    let mkfs = bench.creamery().run(["mkfs", "-f", "--from-tar"]).arg(&archive).arg(packed.path());
    expect_untouched(&archive, || expect_refusal(mkfs, &["the archive is the image itself"]))?;
    packed.detach()?;
    // It can be made from another directory.
    let other = bench.scratch.dir("other")?;
    bench.creamery().run(["mkfs", "-q", "-f", "--rootdir"]).arg(&other).arg(whole.path()).ok()?;
    parted.detach()?;
    whole.detach()
}
