//! Trees that are copied to the host over what is there, beside cp(1). A file with several names is
//! replaced, so that no name elsewhere gets the content.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, Judge, Run};

use crate::support::{MOUNTED, inside, mkfs_empty, sparse_file};

pub(crate) fn cases() -> Vec<Case> {
    let tools = ["setpriv", "setfacl", "getfacl"].map(Judge::Tool);
    vec![
        Case::new("host-targets/trees-as-coreutils", &[&MOUNTED[..], &tools].concat(), trees),
        Case::new("host-targets/what-fits-on-a-full-host", &[Judge::Program, Judge::Root], full_host),
    ]
}

/// cp(1) tries each file of a tree on a full host, and names those that do not fit. Here what came of such a file goes, so that there is
/// room for the next.
fn full_host(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "128M", &image)?;
    let tree = bench.scratch.dir("tree")?;
    fs::write(tree.join("a-large"), vec![7; 6 << 20])?;
    fs::write(tree.join("b-small"), "small")?;
    fs::create_dir(tree.join("c"))?;
    fs::write(tree.join("c/also"), "small, too")?;
    bench.creamery().run(["cp", "-a"]).arg(tree.join(".")).arg(inside(&image, "/")).ok()?;
    let words: [&[&str]; 3] = [&["cp", "-a"], &["restore", "-i"], &[]];
    for words in words {
        let host = Small::mount(&bench.scratch.dir("small")?)?;
        let out = host.0.join("out");
        fs::create_dir(&out)?;
        let run = match words {
            ["cp", ..] => bench.creamery().run(words).arg(inside(&image, "/.")).arg(&out),
            ["restore", ..] => bench.creamery().run(words).arg(&image).arg(&out),
            _ => Run::new("cp").arg("-a").arg(tree.join(".")).arg(&out),
        };
        let done = run.output()?;
        let said = done.stderr_text();
        ensure!(done.code == Some(1) && said.contains("a-large") && said.contains("No space left"), "{done}");
        for (name, content) in [("b-small", "small"), ("c/also", "small, too")] {
            let came = fs::read_to_string(out.join(name)).ok().as_deref() == Some(content);
            ensure!(if words.is_empty() { said.contains(name) } else { came }, "{name}: {done}");
        }
    }
    Ok(())
}

/// A filesystem of the host with little room.
struct Small(PathBuf);

impl Small {
    fn mount(dir: &Path) -> Result<Self> {
        Run::new("mount").args(["-t", "tmpfs", "-o", "size=4m", "none"]).arg(dir).ok()?;
        Ok(Self(dir.to_owned()))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        // A mount that stays is seen by what comes next.
        let _ = Run::new("umount").arg(&self.0).again_while_busy().output();
    }
}

/// The tree that is copied, of which an image has the same.
const TREE: &str = "mkdir tree; cd tree; umask 022; echo content > a; mkdir closed deep; echo f > closed/f; echo g > deep/g; ln -s a link; mkfifo fifo; \
                    chmod 604 a; chmod 555 closed";

/// Scripts of an ordinary user in an empty directory; `CP` copies the tree with the options behind it, to the place at the end. Their output and what
/// they leave are those of cp(1), but for the words of errors, and what cp(1) copies behind the first one.
const AS_A_USER: [&str; 10] = [
    "CP -r out",
    "umask 077; CP -r out",
    "mkdir out; CP -r out; CP -r new",
    "mkdir -p out/tree; echo old > out/tree/a; chmod 444 out/tree/a; CP -r out || echo refused; stat -c %a out/tree/a; cat out/tree/a; mv out/tree/a out; chmod -R u+w out; rm -r out/tree",
    "mkdir -p out/tree; echo old > out/tree/a; chmod 444 out/tree/a; ln out/tree/a other; CP -r --force out; cat out/tree/a other",
    "mkdir -p out/tree/deep; chmod 1733 out/tree/deep; CP -r out; stat -c %a out/tree/deep",
    "mkdir out; umask 277; CP -r out; CP -a new",
    "mkdir out; umask 777; CP -a out",
    "mkdir -p out/tree; echo older > out/tree/a; chmod 640 out/tree/a; CP -r out; stat -c %a out/tree/a",
    "mkdir -p out/tree/closed; CP -r out; stat -c %a out/tree/closed",
];

/// All names of a directory, with what is known of them.
const LISTING: &str = "find . -mindepth 1 -printf '%P %y %m %U:%G %n %l\\n' | sort";

/// Scripts of root.
const AS_ROOT: [&str; 7] = [
    "mkdir -p out/tree; echo older > out/tree/a; chown 77:78 out/tree/a; chmod 606 out/tree/a; setpriv --bounding-set=-fowner --inh-caps=-fowner bash -c \"$(declare -f CP); CP -r out\"; stat -c %u:%a out/tree/a",
    "mkdir -p out/tree; echo older > out/tree/a; chown 77:78 out/tree/a; chmod 606 out/tree/a; setpriv --bounding-set=-all --inh-caps=-all bash -c \"$(declare -f CP); CP -r out\"; stat -c %u out/tree/a",
    "cp /bin/sleep run; mkdir -p out/tree; mv run out/tree/a; exec 9>&1; out/tree/a 1000 & until [ /proc/$!/exe -ef out/tree/a ]; do :; done; CP -rf out; cat out/tree/a; kill %1; wait || true",
    "mkdir -p out/tree; echo older > out/tree/a; chown 77:78 out/tree/a; CP -r out; stat -c %u:%g out/tree/a",
    "mkdir out; setfacl -d -m u:1234:rwx out; CP -a out; getfacl -R -n out",
    "mkdir out; setfacl -d -m u:1234:rwx out; CP -r out; getfacl -R -n out/tree/a out/tree/deep/g",
    "mkdir -p out/tree/deep; setfacl -m u:1234:rwx out/tree/deep; setfacl -d -m u:1234:rwx out/tree/deep; CP -a out; getfacl -R -n out",
];

fn trees(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "128M", &image)?;
    let dir = bench.scratch.dir("dir")?;
    let own = dir.join("creamery");
    bench.creamery().copy_to(&own)?;
    for (path, mode) in [(&dir, 0o755), (&own, 0o755), (&image, 0o644)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    }
    Run::new("bash").args(["-ec", &format!("cd {}; {TREE}", dir.display())]).ok()?;
    let source = dir.join("tree");
    bench.creamery().run(["cp", "-a"]).arg(&source).arg(inside(&image, "/")).ok()?;
    let commands = [
        ("theirs", "cp".to_owned(), source.into_os_string()),
        ("ours", format!("{} cp", own.display()), inside(&image, "/tree")),
    ];
    let users =
        AS_A_USER.iter().map(|script| (script, "setpriv --reuid=65534 --regid=65534 --clear-groups -- bash"));
    for (at, (script, shell)) in users.chain(AS_ROOT.iter().map(|script| (script, "bash"))).enumerate() {
        let mut seen = Vec::new();
        for (who, command, source) in &commands {
            let place = bench.scratch.dir(&format!("dir/{who}-{at}"))?;
            std::os::unix::fs::chown(&place, Some(65534), Some(65534))?;
            let script = format!(
                "CP() {{ {command} \"${{@:1:$#-1}}\" {} \"${{!#}}\"; }}; cd {}; exec 2> words; {script}; rm words; {LISTING}",
                source.display(),
                place.display()
            );
            let mut words = shell.split(' ');
            let run = Run::new(words.next().unwrap_or_default()).args(words).args(["-ec", &script]);
            let done = run.output()?;
            ensure!(
                done.code == Some(0),
                "{done}: {}",
                fs::read_to_string(place.join("words")).unwrap_or_default()
            );
            seen.push(done.stdout_text());
        }
        ensure!(seen[0] == seen[1], "{script}\ncp(1):\n{}\nours:\n{}", seen[0], seen[1]);
    }
    other_names_stay(bench, &dir, &image, &own)?;
    images_stay(bench, &dir, &image, &own)
}

/// A file with a name elsewhere keeps its content there: a new file takes the name in the tree. The copy fails where the directory lets it not, or the
/// file is somebody else's.
fn other_names_stay(bench: &Bench, dir: &Path, image: &Path, own: &Path) -> Result<()> {
    let (place, elsewhere) = (bench.scratch.dir("dir/names/tree")?, dir.join("elsewhere"));
    let source = inside(image, "/tree");
    for (owner, mode_of_dir, succeeds) in
        [(65534, 0o777, true), (77, 0o777, false), (65534, 0o555, false), (77, 0o555, false)]
    {
        fs::write(&elsewhere, "elsewhere")?;
        fs::set_permissions(&elsewhere, fs::Permissions::from_mode(0o666))?;
        fs::hard_link(&elsewhere, place.join("a"))?;
        std::os::unix::fs::chown(&elsewhere, Some(owner), Some(owner))?;
        std::os::unix::fs::chown(&place, Some(65534), Some(65534))?;
        fs::set_permissions(&place, fs::Permissions::from_mode(mode_of_dir))?;
        for target in [dir.join("names"), place.clone()] {
            let from = if target == place { inside(image, "/tree/a") } else { source.clone() };
            let run =
                Run::new("setpriv").args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(own);
            let done = run.args(["cp", "-r"]).arg(from).arg(&target).output()?;
            ensure!(fs::read(&elsewhere)? == b"elsewhere", "owner {owner}, mode {mode_of_dir:o}: {done}");
            let is_named = done.code == Some(1) && done.stderr_text().contains("other hard links");
            ensure!(
                succeeds && fs::read(place.join("a"))? == b"content\n" || !succeeds && is_named,
                "owner {owner}, mode {mode_of_dir:o}: {done}"
            );
        }
        fs::set_permissions(&place, fs::Permissions::from_mode(0o777))?;
        fs::remove_dir_all(&place)?;
        fs::create_dir(&place)?;
        fs::remove_file(&elsewhere)?;
    }
    Ok(())
}

/// An image in the place of a copy stays without `--force`, also where this user cannot read it; one that is mounted stays in any case.
fn images_stay(bench: &Bench, dir: &Path, image: &Path, own: &Path) -> Result<()> {
    let place = bench.scratch.dir("dir/images/tree")?;
    let (there, source) = (place.join("a"), inside(image, "/tree"));
    let copy = |force: &[&str]| {
        let run =
            Run::new("setpriv").args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(own);
        run.args(["cp", "-r"]).args(force).arg(&source).arg(dir.join("images")).output()
    };
    for (is_image, mode) in [(true, 0o644), (false, 0o222)] {
        if is_image {
            mkfs_empty(bench.creamery(), &[], "128M", &there)?;
        } else {
            sparse_file(&there, 1 << 20)?;
        }
        fs::set_permissions(&there, fs::Permissions::from_mode(mode))?;
        for path in [&place, &dir.join("images"), &there] {
            std::os::unix::fs::chown(path, Some(65534), Some(65534))?;
        }
        let refused = copy(&[])?;
        ensure!(
            refused.code == Some(1) && refused.stderr_text().contains("image"),
            "mode {mode:o}: {refused}"
        );
        ensure!(there.metadata()?.len() >= 1 << 20, "mode {mode:o}: {refused}");
        if is_image {
            let mount = FuseMount::mount(bench.creamery(), &there, &bench.scratch.dir("mounted")?, "rw")?;
            let refused = copy(&["--force"])?;
            ensure!(refused.code == Some(1) && there.metadata()?.len() == 128 << 20, "{refused}");
            mount.unmount()?;
        }
        let done = copy(&["--force"])?;
        ensure!(done.code == Some(0) && fs::read(&there)? == b"content\n", "mode {mode:o}: {done}");
        fs::remove_dir_all(&place)?;
        fs::create_dir(&place)?;
    }
    Ok(())
}
