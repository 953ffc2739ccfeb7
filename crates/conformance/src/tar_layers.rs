//! Layers of container images: what their whiteouts take away, beside a model of a few lines that does the same to a folder.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::walk::{Compare, Walk};
use creamery_testkit::{LoopMount, Random, Run, btrfs_check};

use crate::support::{JUDGED, expect_refusal, inside, judge, mkfs_empty};
use crate::tar::{ALL, TAR, archive_of};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("tar/layers-beside-a-model", &JUDGED, beside_a_model),
        Case::new("tar/layers-at-random", &JUDGED, at_random),
        Case::new("tar/whiteouts-that-lead-out", &TAR, hostile),
        Case::new("tar/whiteouts-behind-links", &TAR, behind_links),
        Case::new("tar/whiteouts-are-files-without-the-word", &TAR, without_the_word),
        Case::new("tar/links-to-what-a-layer-replaces", &JUDGED, links_to_what_goes),
    ]
}

/// Layers as shell scripts make them in empty folders.
const LAYERS: [&str; 5] = [
    "mkdir -p etc usr/lib var/log/old empty; echo 1 > etc/a; echo 1 > etc/b; echo 1 > usr/lib/x; ln -s usr/lib lib; \
     echo 1 > var/log/old/1; echo 1 > var/log/2; setfattr -n user.layer -v 1 etc usr; ln etc/a usr/hard; echo t > t",
    // A name goes and comes again, a directory goes with all that is in it, and one is emptied, before and behind what is new in it.
    "mkdir -p etc var/log; touch etc/.wh.a etc/.wh.missing .wh.empty; echo 2 > etc/a; \
     echo 2 > var/log/new; touch var/log/.wh..wh..opq; echo 2 > var/log/2; setfattr -n user.other -v 2 etc; chmod 700 etc",
    // A file for a directory, a directory for a file and for a link; what is gone by the name of a link is the link.
    "mkdir -p etc lib t; echo 3 > usr; echo 3 > lib/y; echo 3 > t/in; touch lib/.wh.x",
    "touch .wh.t .wh.lib; mkdir etc; touch etc/.wh.b; mkdir deep; touch deep/.wh.all; mkdir -p deep/er; touch deep/er/.wh..wh..opq; echo 4 > deep/er/x",
    "touch .wh..wh..opq; mkdir -p etc; echo 5 > etc/last; ln -s . self",
];

fn archive(bench: &Bench, layer: &Path, backwards: bool) -> Result<PathBuf> {
    let mut names = Run::new("find").args([".", "-print0"]).within(layer).ok()?.stdout_text();
    let mut sorted: Vec<&str> = names.split_terminator('\0').collect();
    sorted.sort_unstable();
    if backwards {
        sorted.reverse();
    }
    names = sorted.join("\0");
    let file = bench.scratch.file("layer.tar");
    let tar = Run::new("tar").args(ALL).args(["--format=pax", "--no-recursion", "--null", "-T", "-", "-cf"]);
    tar.arg(&file).within(layer).input(names).ok()?;
    Ok(file)
}

/// What the layer takes away, and then what it has; all that is in the folder belongs to lower layers.
fn apply(model: &Path, layer: &Path, archive: &Path) -> Result<()> {
    let remove = |path: &Path| match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(_) => Ok(()),
    };
    let found = Run::new("find").args([".", "-printf", "%P\\0"]).within(layer).ok()?.stdout_text();
    let names: Vec<&str> = found.split('\0').filter(|name| !name.is_empty()).collect();
    for name in &names {
        let Some((dir, gone)) = name.rsplit_once(".wh.") else { continue };
        let mut dir = dir.trim_end_matches('/');
        let is_opaque = gone == ".opq" || gone == "opq";
        if is_opaque {
            dir = name.strip_suffix(".wh..wh..opq").expect("one of all").trim_end_matches('/');
        }
        // A link on the way leads to nothing that lower layers have by this name.
        let way = Path::new(dir).ancestors().map(|way| model.join(way));
        if way.into_iter().any(|way| !fs::symlink_metadata(way).is_ok_and(|meta| meta.is_dir())) {
            continue;
        }
        if is_opaque {
            fs::read_dir(model.join(dir))?.try_for_each(|entry| remove(&entry?.path()))?;
        } else {
            remove(&model.join(dir).join(gone))?;
        }
    }
    for name in names.iter().filter(|name| !name.contains(".wh.")) {
        let is_dir = |path: PathBuf| fs::symlink_metadata(path).ok().map(|meta| meta.is_dir());
        match (is_dir(layer.join(name)), is_dir(model.join(name))) {
            (Some(true), Some(true)) => {
                // Its attributes are those of the layer alone.
                let script = "getfattr --absolute-names -m - \"$1\" | sed -n 's/^\\(user\\..*\\)/\\1/p' | \
                              while read -r name; do setfattr -x \"$name\" \"$1\"; done";
                Run::new("sh").args(["-e", "-c", script, "sh"]).arg(model.join(name)).ok()?;
            }
            (_, None) => {}
            _ => remove(&model.join(name))?,
        }
    }
    let tar = Run::new("tar").args(ALL).args(["--exclude=.wh.*", "-xpf"]).arg(archive);
    tar.arg("-C").arg(model).ok().map(drop)
}

fn beside_a_model(bench: &Bench) -> Result<()> {
    let scripts: Vec<String> = LAYERS.iter().map(|&script| script.to_owned()).collect();
    layers(bench, &scripts)
}

/// Each image is made of the layers at once, and by adding one after the other.
fn layers(bench: &Bench, scripts: &[String]) -> Result<()> {
    for backwards in [false, true] {
        let model = bench.scratch.dir("model")?;
        let (whole, grown) = (bench.scratch.file("whole.img"), bench.scratch.file("grown.img"));
        mkfs_empty(bench.creamery(), &["-f"], "512M", &grown)?;
        let mut archives: Vec<PathBuf> = Vec::new();
        for (number, script) in scripts.iter().enumerate() {
            let layer = bench.scratch.dir("layer")?;
            Run::new("sh").args(["-e", "-c", script]).within(&layer).ok()?;
            let archive = archive(bench, &layer, backwards)?;
            apply(&model, &layer, &archive)?;
            let add = bench.creamery().run(["tar", "-x", "--oci-whiteouts", "-f", "-"]);
            let add = add.arg(inside(&grown, "/")).input(fs::read(&archive)?);
            let said = add.env("TMPDIR", bench.scratch.path()).ok()?;
            ensure!(said.stderr.is_empty(), "{said}");
            let kept = bench.scratch.file(&format!("{number}.tar"));
            fs::rename(&archive, &kept)?;
            archives.push(kept);
            fs::remove_dir_all(&layer)?;
            let all = archives.iter().flat_map(|archive| ["--from-tar".into(), archive.clone()]);
            let mkfs = bench.creamery().run(["mkfs", "-q", "--oci-whiteouts"]).args(all);
            mkfs.arg(&whole).ok()?;
            let want = Walk::take(&model)?;
            for image in [&whole, &grown] {
                judge(bench, image, &want, &Compare::default())?;
            }
            fs::remove_file(&whole)?;
        }
        fs::remove_dir_all(&model)?;
    }
    Ok(())
}

/// Names of few letters, so that they meet: files, directories and links, and whiteouts of them.
fn at_random(bench: &Bench) -> Result<()> {
    let mut random = Random::new(20);
    let scripts: Vec<String> = (0..6)
        .map(|layer| {
            let mut script = String::new();
            for _ in 0..40 {
                let name = |random: &mut Random| char::from(b'a' + random.below(4) as u8).to_string();
                let depth = random.below(3);
                let dir: String = (0..depth).map(|_| name(&mut random) + "/").collect();
                let last = name(&mut random);
                // What cannot be made where something else is stays away.
                script += &match random.below(6) {
                    0 => format!("mkdir -p ./{dir}{last} 2>&- ||:; "),
                    1 => format!("mkdir -p ./{dir} 2>&- && ln -s a ./{dir}{last} 2>&- ||:; "),
                    2 if layer > 0 => format!("mkdir -p ./{dir} 2>&- && touch ./{dir}.wh.{last} 2>&- ||:; "),
                    3 if layer > 0 => {
                        format!("mkdir -p ./{dir} 2>&- && touch ./{dir}.wh..wh..opq 2>&- ||:; ")
                    }
                    _ => format!("mkdir -p ./{dir} 2>&- && echo {layer} > ./{dir}{last} 2>&- ||:; "),
                };
            }
            script
        })
        .collect();
    layers(bench, &scripts)
}

fn hostile(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    for dir in ["/in/kept", "/out/kept"] {
        bench.creamery().run(["mkdir", "-p"]).arg(inside(&image, dir)).ok()?;
    }
    for link in [["../out", "/in/link"], ["/out", "/in/absolute"]] {
        bench.creamery().run(["ln", "-s", link[0]]).arg(inside(&image, link[1])).ok()?;
    }
    let unpack = |members: &[crate::tar::Member<'_>]| {
        let run = bench.creamery().run(["tar", "-x", "--oci-whiteouts", "-f", "-"]);
        let run = run.arg(inside(&image, "/in")).input(archive_of(members));
        run.env("TMPDIR", bench.scratch.path()).output()
    };
    let listed = || -> Result<String> {
        Ok(bench.creamery().run(["ls", "-R"]).arg(inside(&image, "/")).ok()?.stdout_text())
    };
    let before = listed()?;
    let file = |name| (name, b'0', "", &b""[..]);
    let refused = [
        file(".wh."),
        file(".wh.."),
        file(".wh..."),
        file("kept/.wh..."),
        file("../.wh.out"),
        file("kept/../../.wh.out"),
        file(".wh.kept/x"),
        file(".wh..wh..opq/x"),
        file("../out/.wh..wh..opq"),
        (".wh.dir/", b'5', "", b""),
        ("x/.wh.a/b", b'1', "kept", b""),
    ];
    let said = unpack(&refused)?;
    // A directory with such a name is a whiteout as well, of what is not there.
    ensure!(said.code == Some(1) && said.stderr_text().lines().count() == refused.len(), "{said}");
    ensure!(!said.stderr_text().contains(".wh.dir"), "{said}");
    ensure!(listed()? == before, "something went, or came: {}", listed()?);
    let said = unpack(&[
        file("link/.wh.kept"),
        file("link/.wh..wh..opq"),
        file("absolute/.wh.kept"),
        file(".wh.missing"),
        file("missing/.wh.x"),
        file("missing/.wh..wh..opq"),
        file("kept/.wh..wh.plnk"),
    ])?;
    ensure!(said.code == Some(0) && said.stderr.is_empty(), "{said}");
    ensure!(listed()? == before, "what is behind a link went: {}", listed()?);
    let said = unpack(&[file(".wh.link"), file("./.wh.absolute"), file(".wh.kept")])?;
    ensure!(
        said.code == Some(0) && listed()? == "/:\nin\nout\n\n/in:\n\n/out:\nkept\n\n/out/kept:\n",
        "{}",
        listed()?
    );
    btrfs_check(&image)
}

/// As layer tools do it: what a link on the way leads to, unless the layer itself has a directory in its place.
fn behind_links(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let unpack = |members: &[crate::tar::Member<'_>]| {
        let run = bench.creamery().run(["tar", "-x", "--oci-whiteouts", "-f", "-"]);
        let run = run.arg(inside(&image, "/")).input(archive_of(members));
        run.env("TMPDIR", bench.scratch.path()).ok()
    };
    let there = || -> Result<String> {
        Ok(bench.creamery().run(["find"]).arg(inside(&image, "/")).args(["-type", "f"]).ok()?.stdout_text())
    };
    let file = |name| (name, b'0', "", &b""[..]);
    unpack(&[
        file("usr/lib/gone"),
        file("usr/lib/kept"),
        file("usr/share/gone"),
        ("lib", b'2', "usr/lib", b""),
        ("share", b'2', "/usr/share", b""),
        ("replaced", b'2', "usr/lib", b""),
        ("loop", b'2', "loop", b""),
    ])?;
    unpack(&[
        file("lib/.wh.gone"),
        file("share/.wh..wh..opq"),
        file("replaced/.wh..wh..opq"),
        ("replaced/", b'5', "", b""),
        file("loop/.wh.kept"),
        file("usr/lib/kept/.wh.x"),
    ])?;
    let said = there()?;
    let names: Vec<&str> = said.lines().filter_map(|line| line.rsplit('/').next()).collect();
    ensure!(names == ["kept"], "{said}");
    btrfs_check(&image)
}

/// A hard link of a layer is to what has the name when its turn comes: to the file of a lower layer, as long as that is not replaced.
fn links_to_what_goes(bench: &Bench) -> Result<()> {
    let (lower, upper) = (bench.scratch.file("lower.tar"), bench.scratch.file("upper.tar"));
    fs::write(&lower, archive_of(&[("x", b'0', "", b"lower"), ("y", b'0', "", b"kept")]))?;
    let (link, dir, inner) = (("link", b'1', "x", &b""[..]), ("x/", b'5', "", &b""[..]), "x/in");
    let file = |name| (name, b'0', "", &b"upper"[..]);
    let (whole, grown) = (bench.scratch.file("whole.img"), bench.scratch.file("grown.img"));
    for (members, refused) in [
        (&[link, dir, file(inner)][..], None),
        (&[link, file(inner), dir], None),
        (&[link, file(inner)], None),
        (&[file(".wh.y"), link, dir, file(inner)], None),
        (&[dir, file(inner), link], Some("link: hard link to directory x")),
        (&[file(".wh.x"), link], Some("link: link target x is missing: no lower layer has it")),
        (&[("x/in", b'1', "x", b"")], Some("x/in: it links to its own parent directory")),
        (&[file("x"), file(inner)], Some("x/in: ")),
    ] {
        fs::write(&upper, archive_of(members))?;
        let mkfs = bench.creamery().run(["mkfs", "-q", "-f", "--oci-whiteouts", "-b", "200M", "--from-tar"]);
        let mkfs = mkfs.arg(&lower).arg("--from-tar").arg(&upper).arg(&whole);
        mkfs_empty(bench.creamery(), &["-f"], "200M", &grown)?;
        bench.creamery().run(["tar", "-x", "-f"]).arg(&lower).arg(inside(&grown, "/")).ok()?;
        let grow = bench.creamery().run(["tar", "-x", "--oci-whiteouts", "-f"]).arg(&upper);
        let grow = grow.arg(inside(&grown, "/"));
        if let Some(said) = refused {
            expect_refusal(mkfs, &["upper.tar", said])?;
            let grown = grow.output()?;
            ensure!(grown.code == Some(1) && grown.stderr_text().contains(said), "{grown}");
            continue;
        }
        for (run, image) in [(mkfs, &whole), (grow, &grown)] {
            run.ok()?;
            btrfs_check(image)?;
            let mount = LoopMount::mount(image, &bench.scratch.file("kernel"), "ro")?;
            let read = |name: &str| fs::read_to_string(mount.dir().join(name));
            ensure!(read("link")? == "lower" && read(inner)? == "upper", "{members:?}");
            let names = fs::metadata(mount.dir().join("link"))?.nlink();
            ensure!(names == 1, "{names} names, and the other one is gone: {members:?}");
            mount.unmount()?;
        }
    }
    Ok(())
}

/// Nothing goes because of its name alone.
fn without_the_word(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    let bytes =
        archive_of(&[("a", b'0', "", b"1"), (".wh.a", b'0', "", b"2"), (".wh..wh..opq", b'0', "", b"")]);
    let archive = bench.scratch.file("a.tar");
    fs::write(&archive, bytes)?;
    bench.creamery().run(["mkfs", "-q", "--from-tar"]).arg(&archive).arg(&image).ok()?;
    for _ in 0..2 {
        let listed = bench.creamery().run(["ls"]).arg(inside(&image, "/")).ok()?.stdout_text();
        ensure!(listed == ".wh..wh..opq\n.wh.a\na\n", "{listed}");
        bench.creamery().run(["tar", "-x", "-f"]).arg(&archive).arg(inside(&image, "/")).ok()?;
    }
    btrfs_check(&image)
}
