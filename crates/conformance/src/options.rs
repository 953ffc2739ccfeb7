//! The options of mkfs and mount, each shown by a judge that is not ours.

use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::walk::{Compare, Walk};
use creamery_testkit::{FuseMount, Judge, LoopMount, Run, btrfs_check, until};

use crate::support::{
    JUDGED, MOUNTED, expect_refusal, judge, mkfs_empty, mkfs_from, sparse_file, torture_source,
};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("mkfs/label-uuid-size", &[Judge::Program, Judge::BtrfsProgs], label_uuid_size),
        Case::new("mkfs/default-features", &[Judge::Program, Judge::BtrfsProgs], default_features),
        Case::new("mkfs/empty", &JUDGED, empty),
        Case::new("mkfs/over-an-old-image", &JUDGED, over_an_old_image),
        Case::new("mkfs/block-device", &JUDGED, block_device),
        Case::new("mkfs/subvolumes", &JUDGED, subvolumes),
        Case::new("mkfs/by-links", &JUDGED, by_links),
        Case::new("mkfs/shrink", &JUDGED, shrink),
        Case::new("mkfs/owner", &JUDGED, owner),
        Case::new("mount/read-only", &MOUNTED, read_only),
        Case::new("mount/subvolume", &MOUNTED, mount_subvolume),
        Case::new("mount/mapped-owners", &MOUNTED, mapped_owners),
        Case::new("mount/allow-other", &[&MOUNTED[..], &[Judge::Tool("setpriv")]].concat(), allow_other),
        Case::new("mount/commit-interval", &MOUNTED, commit_interval),
        Case::new("mount/helper", &MOUNTED, helper),
        Case::new("mount/remount-keeps-writing", &MOUNTED, remount_keeps_writing),
        Case::new("mount/options-of-an-fstab", &MOUNTED, options_of_an_fstab),
        Case::new("mount/max-inline", &MOUNTED, max_inline),
        Case::new("mount/bind", &MOUNTED, bind),
        Case::new("mount/subtype", &MOUNTED, subtype),
        Case::new("mount/on-a-file", &MOUNTED, on_a_file),
    ]
}

/// The program under the names of btrfs-progs' helpers.
fn by_links(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    let link = |name: &str| -> Result<std::path::PathBuf> {
        let link = bench.scratch.file(name);
        symlink(bench.creamery().path(), &link)?;
        Ok(link)
    };
    let (mkfs, fsck) = (link("mkfs.btrfs")?, link("fsck.btrfs")?);
    std::fs::File::create_new(&image)?.set_len(300 << 20)?;
    let options =
        ["-f", "-v", "-L", "by a link", "-n", "4k", "-O", "^no-holes", "--csum", "xxhash", "-m", "single"];
    Run::new(&mkfs).args(options).arg(&image).ok()?;
    let text = superblock(&image)?;
    expect_line(&text, "label by a link")?;
    expect_line(&text, "nodesize 4096")?;
    btrfs_check(&image)?;
    ensure!(Run::new(&mkfs).arg("-V").ok()?.stdout_text().starts_with("mkfs.btrfs, part of creamery"));
    expect_refusal(Run::new(&mkfs).args(["-f", "-m", "raid1"]).arg(&image), &["raid1"])?;
    as_of_mkfs_btrfs(bench, &mkfs)?;
    let of = |args: &[&str], place: &Path| Run::new(&fsck).args(args).arg(place).output();
    let missing = bench.scratch.file("missing");
    for (args, place, status, says) in [
        (&["-a"][..], &image, 0, ""),
        (&["-p", "-y"], &image, 0, ""),
        (&[], &image, 0, "creamery check"),
        (&["-a"], &missing, 8, "does not exist"),
    ] {
        let run = of(args, place)?;
        let said = run.stderr_text();
        ensure!(run.code == Some(status), "{args:?} ended with {:?}: {said}", run.code);
        ensure!(if says.is_empty() { said.is_empty() } else { said.contains(says) }, "{args:?}: {said}");
    }
    Ok(())
}

/// What mkfs.btrfs 6.14 does with the same words; it knows squota and block-group-tree as `-O` only.
fn as_of_mkfs_btrfs(bench: &Bench, ours: &Path) -> Result<()> {
    let source = bench.scratch.dir("source")?;
    std::fs::create_dir(source.join("sub"))?;
    let source = source.to_str().unwrap_or_default();
    let cases: [(&[&str], i32); 13] = [
        (&["-b", "0"], 0),
        (&["-b", "200M"], 0),
        (&["-b", "301M"], 1),
        (&["-b", "301M", "--rootdir", source], 0),
        (&["-R", "quota"], 0),
        (&["-R", "free-space-tree"], 0),
        (&["--runtime-features", "quota,free-space-tree"], 0),
        (&["-R", "no-holes"], 1),
        (&["--rootdir", source, "--compress", "zstd:"], 0),
        (&["--rootdir", source, "--compress", "no:"], 1),
        (&["--rootdir", source, "-u", "ro:/sub"], 0),
        (&["-Z"], 1),
        (&["-n", "3k"], 1),
    ];
    for (args, status) in cases {
        let mut made = Vec::new();
        for program in [Path::new("mkfs.btrfs"), ours] {
            let image = bench.scratch.file("as.img");
            std::fs::File::create(&image)?.set_len(300 << 20)?;
            let run = Run::new(program).arg("-f").args(args).arg(&image).output()?;
            ensure!(run.code == Some(status), "{}: {args:?}: {:?}", program.display(), run.code);
            if status == 0 {
                btrfs_check(&image)?;
                let text = superblock(&image)?;
                let size = text.lines().find(|line| line.starts_with("total_bytes")).map(str::to_owned);
                made.push((size, std::fs::metadata(&image)?.len()));
            }
        }
        ensure!(made.windows(2).all(|pair| pair[0] == pair[1]), "{args:?}: {made:?}");
    }
    for args in [&["-R", "squota"], &["-R", "block-group-tree"]] {
        let image = bench.scratch.file("as.img");
        Run::new(ours).arg("-f").args(*args).arg(&image).ok()?;
        btrfs_check(&image)?;
    }
    ensure!(Run::new(ours).output()?.code == Some(1), "no device is named");
    Ok(())
}

/// What Linux takes of its Btrfs we take, too.
fn options_of_an_fstab(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let options = "defaults,noatime,ssd,space_cache=v2,thread_pool=4,skip_balance,noautodefrag,acl,barrier,datasum,degraded,\
                   user_subvol_rm_allowed,enospc_debug,fatal_errors=panic,metadata_ratio=3,autodefrag,ssd_spread";
    let linux =
        LoopMount::mount(&image, &bench.scratch.file("kernel"), options.trim_start_matches("defaults,"))?;
    linux.unmount()?;
    let dir = bench.scratch.dir("fuse")?;
    let mounted = bench.creamery().run(["mount", "-o", options]).arg(&image).arg(&dir).ok()?;
    let said = mounted.stderr_text();
    bench.creamery().run(["umount"]).arg(&dir).ok()?;
    for (word, is_told) in
        [("thread_pool=4", true), ("mount option autodefrag", true), ("space_cache", false), ("acl", false)]
    {
        ensure!(said.contains(word) == is_told, "{word}: {said}");
    }
    for refused in ["thread_pool=many", "fatal_errors=ignore", "space_cache=v3"] {
        let run = bench.creamery().run(["mount", "-o", refused]).arg(&image).arg(&dir);
        expect_refusal(run, &[refused, "invalid value"])?;
    }
    Ok(())
}

/// How long the files are that an image keeps in its tree, as btrfs-progs lists them.
fn inline_lengths(image: &Path) -> Result<Vec<u64>> {
    let dump = Run::new("btrfs").args(["inspect-internal", "dump-tree", "-t", "5"]).arg(image).ok()?;
    let dump = dump.stdout_text();
    let extents = dump.lines().filter_map(|line| line.trim().strip_prefix("inline extent data size"));
    let lengths = extents.filter_map(|line| line.split(' ').nth(3));
    let mut lengths: Vec<u64> = lengths.map(str::parse).collect::<Result<_, _>>()?;
    lengths.sort_unstable();
    Ok(lengths)
}

/// Which files are kept in the tree, by us and by Linux.
fn max_inline(bench: &Bench) -> Result<()> {
    const LENGTHS: [usize; 10] = [1, 99, 100, 101, 2047, 2048, 2049, 4095, 4096, 4097];
    for (round, options) in [
        "max_inline=0",
        "max_inline=100",
        "max_inline=4K",
        "max_inline=1M",
        "max_inline=100,compress-force=lzo",
        "",
    ]
    .into_iter()
    .enumerate()
    {
        let images = ["linux", "ours"].map(|name| bench.scratch.file(&format!("{name}-{round}.img")));
        for image in &images {
            mkfs_empty(bench.creamery(), &[], "256M", image)?;
        }
        let linux = LoopMount::mount(&images[0], &bench.scratch.file("kernel"), options)?;
        let ours = FuseMount::mount(bench.creamery(), &images[1], &bench.scratch.file("fuse"), options)?;
        for top in [linux.dir(), ours.dir()] {
            for len in LENGTHS {
                std::fs::write(top.join(len.to_string()), vec![b'x'; len])?;
            }
        }
        linux.unmount()?;
        ours.unmount()?;
        btrfs_check(&images[1])?;
        let (wanted, found) = (inline_lengths(&images[0])?, inline_lengths(&images[1])?);
        ensure!(wanted == found, "{options:?}: Linux has {wanted:?}, we have {found:?}");
    }
    Ok(())
}

/// The superblock as btrfs-progs prints it, as words.
fn superblock(image: &Path) -> Result<String> {
    let said =
        Run::new("btrfs").args(["inspect-internal", "dump-super", "-f"]).arg(image).ok()?.stdout_text();
    Ok(said.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") + "\n").collect())
}

fn expect_line(text: &str, line: &str) -> Result<()> {
    ensure!(text.lines().any(|found| found == line), "no line {line:?} in:\n{text}");
    Ok(())
}

fn label_uuid_size(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    let fsid = "01234567-89ab-4def-8123-456789abcdef";
    mkfs_empty(bench.creamery(), &["-L", "a label, with spaces", "-U", fsid, "-K"], "300M", &image)?;
    let text = superblock(&image)?;
    expect_line(&text, "label a label, with spaces")?;
    expect_line(&text, &format!("fsid {fsid}"))?;
    expect_line(&text, &format!("total_bytes {}", 300 << 20))?;
    ensure!(image.metadata()?.len() == 300 << 20, "the image has {} bytes", image.metadata()?.len());
    btrfs_check(&image)
}

fn default_features(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "300M", &image)?;
    let text = superblock(&image)?;
    for feature in ["MIXED_BACKREF", "BIG_METADATA", "EXTENDED_IREF", "SKINNY_METADATA", "NO_HOLES"] {
        ensure!(text.contains(feature), "{feature} is off:\n{text}");
    }
    for feature in ["FREE_SPACE_TREE", "FREE_SPACE_TREE_VALID", "BLOCK_GROUP_TREE"] {
        ensure!(text.contains(feature), "{feature} is off:\n{text}");
    }
    expect_line(&text, "nodesize 16384")?;
    expect_line(&text, "sectorsize 4096")?;
    expect_line(&text, "csum_type 0 (crc32c)")
}

fn empty(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    for options in [&[][..], &["--mixed"], &["-n", "65536"], &["-m", "single"]] {
        mkfs_empty(bench.creamery(), &[options, &["-f"]].concat(), "256M", &image)
            .with_context(|| format!("with {options:?}"))?;
        btrfs_check(&image).with_context(|| format!("with {options:?}"))?;
        let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "")?;
        std::fs::write(mount.dir().join("file"), b"content")?;
        mount.unmount()?;
        btrfs_check(&image).with_context(|| format!("with {options:?}, written by the kernel"))?;
    }
    Ok(())
}

fn over_an_old_image(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    let (source, want) = torture_source(bench)?;
    for options in [&["-n", "32768"][..], &["-f", "-m", "single"], &["-f", "--csum", "sha256"]] {
        mkfs_from(bench.creamery(), options, &source, &image)?;
        judge(bench, &image, &want, &Compare::default())?;
    }
    Ok(())
}

fn block_device(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    sparse_file(&image, 1 << 30)?;
    let device = creamery_testkit::LoopDevice::attach(&image, false)?;
    let (source, want) = torture_source(bench)?;
    mkfs_from(bench.creamery(), &[], &source, device.path())?;
    device.detach()?;
    judge(bench, &image, &want, &Compare::default())
}

fn subvolumes(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    let (source, _) = torture_source(bench)?;
    // Hard links must not cross the border of a subvolume.
    std::fs::remove_file(source.join("links/of-another-folder"))?;
    let want = Walk::take(&source)?;
    let options = ["--subvol", "names", "--subvol", "ro:holes", "--subvol", "rw:deep/level-0"];
    mkfs_from(bench.creamery(), &options, &source, &image)?;
    btrfs_check(&image)?;
    let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "")?;
    creamery_testkit::walk::expect_same("subvolumes", &want, &Walk::take(mount.dir())?, &Compare::default())?;
    let listed = Run::new("btrfs").args(["subvolume", "list"]).arg(mount.dir()).ok()?.stdout_text();
    for path in ["path names", "path holes", "path deep/level-0"] {
        ensure!(listed.lines().any(|line| line.ends_with(path)), "no subvolume {path:?} in:\n{listed}");
    }
    let written = std::fs::write(mount.dir().join("holes/new"), b"");
    ensure!(written.is_err(), "a read-only subvolume was written");
    std::fs::write(mount.dir().join("names/new"), b"new")?;
    mount.unmount()
}

fn shrink(bench: &Bench) -> Result<()> {
    let (small, large) = (bench.scratch.file("small.img"), bench.scratch.file("large.img"));
    let (source, want) = torture_source(bench)?;
    mkfs_from(bench.creamery(), &["-b", "4G"], &source, &large)?;
    mkfs_from(bench.creamery(), &["-b", "4G", "--shrink"], &source, &small)?;
    ensure!(large.metadata()?.len() == 4 << 30, "-b 4G gives {} bytes", large.metadata()?.len());
    ensure!(small.metadata()?.len() < 512 << 20, "--shrink leaves {} bytes", small.metadata()?.len());
    judge(bench, &small, &want, &Compare::default())
}

fn owner(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    let (source, want) = torture_source(bench)?;
    mkfs_from(bench.creamery(), &["--owner", "1234:5678"], &source, &image)?;
    judge(bench, &image, &want, &Compare { owners: false, ..Compare::default() })?;
    let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "ro")?;
    for (path, entry) in Walk::take(mount.dir())?.entries() {
        let path = path.escape_ascii();
        ensure!((entry.uid, entry.gid) == (1234, 5678), "{path} belongs to {}:{}", entry.uid, entry.gid);
    }
    mount.unmount()
}

fn read_only(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    let (source, want) = torture_source(bench)?;
    mkfs_from(bench.creamery(), &[], &source, &image)?;
    crate::support::expect_untouched(&image, || {
        let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), "ro")?;
        let written = std::fs::write(mount.dir().join("new"), b"");
        let code = written.expect_err("a read-only mount was written").raw_os_error();
        ensure!(code == Some(30), "writing to a read-only mount gives {code:?}, want EROFS");
        for path in [mount.dir().to_owned(), mount.dir().join("deep")] {
            std::fs::File::open(path)?.sync_all().context("fsync on a read-only mount")?;
        }
        creamery_testkit::walk::expect_same(
            "a mount",
            &want,
            &Walk::take(mount.dir())?,
            &Compare::default(),
        )?;
        mount.unmount()
    })
}

fn mount_subvolume(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "512M", &image)?;
    let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "")?;
    Run::new("btrfs").args(["subvolume", "create"]).arg(mount.dir().join("one")).ok()?;
    std::fs::create_dir(mount.dir().join("folder"))?;
    Run::new("btrfs").args(["subvolume", "create"]).arg(mount.dir().join("folder/two")).ok()?;
    std::fs::write(mount.dir().join("folder/two/file"), b"two")?;
    let shown =
        Run::new("btrfs").args(["inspect-internal", "rootid"]).arg(mount.dir().join("folder/two")).ok()?;
    let id = shown.stdout_text().trim().to_owned();
    mount.unmount()?;
    for option in [String::from("subvol=/folder/two"), format!("subvolid={id}")] {
        let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), &option)?;
        ensure!(std::fs::read(mount.dir().join("file"))? == b"two", "{option} shows something else");
        mount.unmount()?;
    }
    Ok(())
}

fn mapped_owners(bench: &Bench) -> Result<()> {
    use std::os::unix::fs::MetadataExt;
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let options = "uid=4321,gid=8765";
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), options)?;
    let stat = mount.dir().metadata()?;
    ensure!((stat.uid(), stat.gid()) == (4321, 8765), "the root belongs to {}:{}", stat.uid(), stat.gid());
    mount.unmount()
}

fn allow_other(bench: &Bench) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    std::fs::set_permissions(bench.scratch.path(), std::fs::Permissions::from_mode(0o755))?;
    for (options, code) in [("", 1), ("allow_other", 0)] {
        let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), options)?;
        std::fs::write(mount.dir().join("file"), b"content")?;
        let nobody =
            Run::new("setpriv").args(["--reuid=65534", "--regid=65534", "--clear-groups", "--", "cat"]);
        let said = nobody.arg(mount.dir().join("file")).output()?;
        ensure!(said.code == Some(code), "with {options:?}, another user's cat: {said}");
        mount.unmount()?;
    }
    Ok(())
}

/// With `commit=1`, what was written is in the image soon, without fsync and without unmounting.
fn commit_interval(bench: &Bench) -> Result<()> {
    let copy = bench.scratch.file("copy.img");
    let image = |name: &str| bench.scratch.file(&format!("{name}.img"));
    let written = |name: &str, options: &str| -> Result<FuseMount> {
        mkfs_empty(bench.creamery(), &[], "256M", &image(name))?;
        let mount = FuseMount::mount(bench.creamery(), &image(name), &bench.scratch.file(name), options)?;
        std::fs::write(mount.dir().join("file"), b"content")?;
        Ok(mount)
    };
    let is_in_the_image = |name: &str| -> Result<bool> {
        Run::new("cp").arg("--sparse=always").args([&image(name), &copy]).ok()?;
        let said = bench.creamery().run(["cat"]).arg(crate::support::inside(&copy, "/file")).output()?;
        Ok(said.stdout == b"content")
    };
    // Were there one interval for both, the first one would be the first in its image.
    let mounts = [written("late", "commit=3600")?, written("soon", "commit=1")?];
    until("the file to be in the image", || is_in_the_image("soon"))?;
    ensure!(!is_in_the_image("late")?, "commit=3600: the file is in the image as soon as with commit=1");
    mounts.into_iter().try_for_each(FuseMount::unmount)
}

/// How a mount writes stays; a remount that says something else is refused, and one that repeats it is none of that.
fn remount_keeps_writing(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let options = "commit=5,discard=async";
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), options)?;
    let remount = |words: &str| {
        let words = format!("remount,{words}");
        bench.creamery().run(["mount", "-o", &words]).arg(&image).arg(mount.dir()).output()
    };
    for words in ["commit=5,discard=async,delalloc,noflushoncommit", "noatime", "ro,commit=5", "rw"] {
        let said = remount(words)?;
        ensure!(said.code == Some(0), "remount,{words}: {said}");
    }
    for word in ["commit=6", "commit=0", "nodelalloc", "flushoncommit", "discard", "nodiscard"] {
        let said = remount(&format!("ro,{word}"))?;
        let told = said.stderr_text();
        ensure!(said.code == Some(1) && told.contains(word) && told.contains("unmount it"), "{word}: {said}");
        std::fs::write(mount.dir().join(word), b"it is writable as before")?;
    }
    mount.unmount()?;
    btrfs_check(&image)
}

/// The name under which mount(8) and fstab find us.
fn helper(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let (helper, dir) = (bench.scratch.file("mount.fuse.creamery"), bench.scratch.dir("fuse")?);
    symlink(bench.creamery().path(), &helper)?;
    Run::new(&helper).arg(&image).arg(&dir).args(["-o", "rw,noatime,nodev,nosuid"]).ok()?;
    let mounts = std::fs::read_to_string("/proc/self/mounts")?;
    let line = mounts.lines().find(|line| line.split(' ').nth(1) == dir.to_str());
    let kind = line.and_then(|line| line.split(' ').nth(2)).unwrap_or("nothing");
    ensure!(kind == "fuse.creamery", "the mount's type is {kind}");
    std::fs::write(dir.join("file"), b"content")?;
    // As mount(8) calls it for `mount -o remount,ro DIR`, with the kernel's own words repeated.
    let remount = |flag: &str| {
        let words = format!("{flag},nodev,relatime,remount,user_id=0,group_id=0,default_permissions");
        Run::new(&helper).arg(&image).arg(&dir).args(["-o", &words])
    };
    remount("ro").ok()?;
    let refused = std::fs::write(dir.join("other"), b"").expect_err("the mount is read-only");
    ensure!(refused.kind() == std::io::ErrorKind::ReadOnlyFilesystem, "writing said {refused}");
    remount("rw").ok()?;
    std::fs::write(dir.join("other"), b"")?;
    let umount_helper = bench.scratch.file("umount.fuse.creamery");
    symlink(bench.creamery().path(), &umount_helper)?;
    Run::new(&umount_helper).arg(&dir).arg("-n").again_while_busy().ok()?;
    btrfs_check(&image)?;

    // An image that the server has open only for reading cannot become writable under the mount.
    Run::new(&helper).arg(&image).arg(&dir).args(["-o", "ro"]).ok()?;
    remount("ro").ok()?;
    let said = remount("rw").output()?;
    ensure!(
        said.code == Some(1) && said.stderr_text().contains("open only for reading"),
        "remount rw: {said}"
    );
    Run::new(&umount_helper).arg(&dir).again_while_busy().ok().map(drop)
}

/// A filesystem that shows at two places: taking one away neither waits for the other nor harms it.
fn bind(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let (first, second) = (bench.scratch.dir("fuse")?, bench.scratch.dir("second")?);
    bench.creamery().run(["mount"]).arg(&image).arg(&first).ok()?;
    Run::new("mount").arg("--bind").arg(&first).arg(&second).ok()?;
    bench.creamery().run(["umount"]).arg(&first).again_while_busy().ok()?;
    std::fs::write(second.join("file"), b"content")?;
    bench.creamery().run(["umount"]).arg(&second).again_while_busy().ok()?;
    btrfs_check(&image)?;
    let said = bench.creamery().run(["cat"]).arg(crate::support::inside(&image, "/file")).ok()?;
    ensure!(said.stdout == b"content", "the image has {said}");
    Ok(())
}

/// A mount whose type and source the mounter has chosen is one of ours all the same.
fn subtype(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    for options in ["subtype=cheese", "subtype=cheese,fsname=cellar", "subtype="] {
        let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), options)?;
        std::fs::write(mount.dir().join("file"), options)?;
        bench.creamery().run(["stats"]).arg(mount.dir()).ok()?;
        bench.creamery().run(["mount", "-o", "remount,ro"]).arg(&image).arg(mount.dir()).ok()?;
        mount.unmount()?;
        let said = bench.creamery().run(["cat"]).arg(crate::support::inside(&image, "/file")).ok()?;
        ensure!(said.stdout_text() == options, "the image has {said}");
    }
    Ok(())
}

/// A directory is mounted on a directory, and on nothing else.
fn on_a_file(bench: &Bench) -> Result<()> {
    let (image, file) = (bench.scratch.file("disk.img"), bench.scratch.file("file"));
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    std::fs::write(&file, b"content")?;
    let mount = bench.creamery().run(["mount"]).arg(&image).arg(&file);
    crate::support::expect_refusal(mount, &["file", "a directory"])?;
    ensure!(std::fs::read(&file)? == b"content", "something is mounted on the file");
    Ok(())
}
