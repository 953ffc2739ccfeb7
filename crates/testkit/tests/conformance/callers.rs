//! Operations on subvolumes by caller, by the mount that they come through, and by what is marked: each cell of the table beside Linux.

use std::fmt::Write as _;
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, Judge, LoopMount, Run, btrfs_check, one_in, seed_of};

use crate::subvolumes_controls::compile;
use crate::subvolumes_live::{AS_NOBODY, for_everybody, mount_point};
use crate::support::{MOUNTED, mkfs_empty};

pub(crate) fn cases() -> Vec<Case> {
    let tools = ["setpriv", "unshare", "cc", "chattr", "setfacl"].map(Judge::Tool);
    let tools = [&MOUNTED[..], &tools].concat();
    vec![
        Case::new("callers/as-on-linux", &tools, beside_linux),
        Case::new("callers/default-acls-stay-outside-of-subvolumes", &tools, default_acls),
        Case::new("callers/a-stranger-names-no-socket", &tools, sockets),
    ]
}

const OWNER: u32 = 1000;

/// Callers, by the words before their command. The third is what root of a container is.
const CALLERS: [(&str, &[&str]); 6] = [
    ("root", &[]),
    ("root without capabilities", &["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--"]),
    ("root of another user namespace", &["unshare", "--user", "--map-root-user", "--"]),
    ("the owner", &["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", "--"]),
    ("one of the group", &["setpriv", "--reuid=1001", "--regid=1001", "--groups=1000", "--"]),
    ("a stranger", &["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]),
];

/// Mounts: the filesystem's own, and two of one of its directories.
const WAYS: [&str; 3] = ["mount", "bind", "read-only bind"];

/// Subvolumes: as they are made, read-only, immutable, append-only.
const OBJECTS: [&str; 4] = ["plain", "read-only", "immutable", "append-only"];

/// Operations. `S` stands for the subvolume, `ID` for its number; `PROGRAM` sends controls.
const OPERATIONS: [(&str, &str); 16] = [
    ("create", "PROGRAM create S new"),
    ("destroy", "PROGRAM destroy . S"),
    ("destroy by number", "PROGRAM destroy-id . ID"),
    ("make read-only", "PROGRAM flags S 2"),
    ("make writable", "PROGRAM flags S 0"),
    ("make the default", "PROGRAM default . ID"),
    ("clear received", "PROGRAM received S"),
    ("search", "PROGRAM search-once . ID 256 0 1 1"),
    ("look up", "PROGRAM lookup . ID 256"),
    ("look up a file", "PROGRAM lookup . ID 257"),
    ("rmdir", "rmdir S"),
    ("rename", "mv -T S S.renamed"),
    ("move", "mv -T S other/S"),
    ("write", "sh -c 'echo more >> S/file'"),
    ("cut while opening", "sh -c ': > S/file'"),
    ("cut", "truncate -s 1 S/file"),
];

/// One cell.
struct Cell {
    number: usize,
    operation: (&'static str, &'static str),
    caller: (&'static str, &'static [&'static str]),
    way: usize,
    object: &'static str,
}

/// A share of all cells.
fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for operation in OPERATIONS {
        for caller in CALLERS {
            for way in 0..WAYS.len() {
                for object in OBJECTS {
                    cells.push(Cell { number: cells.len(), operation, caller, way, object });
                }
            }
        }
    }
    let share = one_in(7);
    let first = usize::try_from(seed_of("callers") % share as u64).expect("a small number");
    cells.into_iter().skip(first).step_by(share).collect()
}

/// What a command says, and its status with what is there then.
#[derive(PartialEq, Eq, Debug)]
struct Outcome {
    said: String,
    state: String,
}

/// A filesystem and its three ways.
struct Side {
    program: PathBuf,
    ways: [PathBuf; 3],
}

impl Side {
    /// Binds the directory `pub` of what is mounted at `dir` twice, below `beside`.
    fn new(program: &Path, dir: &Path, beside: &Path) -> Result<Self> {
        std::fs::set_permissions(dir, Permissions::from_mode(0o755))?;
        let public = dir.join("pub");
        std::fs::create_dir_all(public.join("other"))?;
        for open in [&public, &public.join("other")] {
            std::fs::set_permissions(open, Permissions::from_mode(0o777))?;
        }
        let ways = [public.clone(), beside.join("bind"), beside.join("read-only")];
        for way in &ways[1..] {
            std::fs::create_dir_all(way)?;
            Run::new("mount").arg("--bind").arg(&public).arg(way).ok()?;
        }
        Run::new("mount").args(["-i", "-o", "remount,bind,ro"]).arg(&ways[2]).ok()?;
        Ok(Self { program: program.to_owned(), ways })
    }

    fn control(&self, words: &[&str]) -> Result<String> {
        Ok(Run::new(&self.program).args(words).within(&self.ways[0]).ok()?.stdout_text().trim().to_owned())
    }

    /// Makes the subvolume of a cell. Returns its number.
    fn make(&self, cell: &Cell) -> Result<String> {
        let name = format!("s{}", cell.number);
        let made = self.control(&["create", ".", &name])?;
        ensure!(made == "ok 0", "making {name}: {made}");
        let at = self.ways[0].join(&name);
        if ["write", "cut while opening", "cut", "look up a file"].contains(&cell.operation.0) {
            std::fs::write(at.join("file"), "some text\n")?;
            chown(at.join("file"), Some(OWNER), Some(OWNER))?;
            std::fs::set_permissions(at.join("file"), Permissions::from_mode(0o6666))?;
        }
        chown(&at, Some(OWNER), Some(OWNER))?;
        std::fs::set_permissions(&at, Permissions::from_mode(0o775))?;
        let told = self.control(&["lookup", &name, "0", "256"])?;
        let id = told.split(' ').next().context("a number")?.to_owned();
        match cell.object {
            "read-only" => drop(self.control(&["flags", &name, "2"])?),
            "immutable" => drop(Run::new("chattr").arg("+i").arg(&at).ok()?),
            "append-only" => drop(Run::new("chattr").arg("+a").arg(&at).ok()?),
            _ => {}
        }
        Ok(id)
    }

    /// What comes of a cell.
    fn run(&self, cell: &Cell) -> Result<Outcome> {
        let (id, name) = (self.make(cell)?, format!("s{}", cell.number));
        let command = cell.operation.1.replace('S', &name).replace("ID", &id);
        let command = command.replace("PROGRAM", &self.program.to_string_lossy());
        let mut words = cell.caller.1.to_vec();
        words.extend(["sh", "-c", &command]);
        let run = Run::new(words[0]).args(&words[1..]).within(&self.ways[cell.way]).env("LC_ALL", "C");
        let said = run.output()?;
        let mut all = format!("status {:?}", said.code);
        let there = |name: &str| std::fs::symlink_metadata(self.ways[0].join(name));
        for name in [name.clone(), format!("{name}.renamed"), format!("other/{name}"), format!("{name}/new")]
        {
            let _ = write!(all, " {name}: {};", there(&name).is_ok());
        }
        if let Ok(file) = there(&format!("{name}/file")) {
            let _ = write!(all, " file: {:o} {}", file.permissions().mode(), file.len());
        }
        let _ = write!(all, " {}", self.control(&["flags", &name]).unwrap_or_default());
        if cell.operation.0 == "make the default" {
            self.control(&["default", ".", "5"])?;
        }
        let said = format!("{}{}", said.stdout_text(), said.stderr_text());
        Ok(Outcome { said: said.replace(&format!("{id} "), "ID "), state: all })
    }

    fn unbind(&self) -> Result<()> {
        self.ways[1..]
            .iter()
            .try_for_each(|way| Run::new("umount").args(["-i"]).arg(way).again_while_busy().ok().map(drop))
    }
}

/// Why another error than Linux' refuses a cell, with the same state after it; docs/mount.md has these.
fn difference(cell: &Cell) -> Option<&'static str> {
    let is_write = ["write", "cut while opening", "cut"].contains(&cell.operation.0);
    match cell.object {
        "read-only" if is_write => Some("the kernel looks at the permissions before the server is asked"),
        "plain" => None,
        _ if cell.operation.0 == "move" => Some("the kernel wants the right to write to what moves, first"),
        _ => None,
    }
}

fn beside_linux(bench: &Bench) -> Result<()> {
    for_everybody(bench)?;
    let program = compile(bench)?;
    let (image, theirs) = (bench.scratch.file("disk.img"), bench.scratch.file("theirs.img"));
    for image in [&image, &theirs] {
        mkfs_empty(bench.creamery(), &[], "1G", image)?;
    }
    let cells = cells();
    let tell = |side: Side| -> Result<Vec<Outcome>> {
        let said = cells.iter().map(|cell| side.run(cell)).collect::<Result<_>>();
        side.unbind()?;
        said
    };
    let kernel = LoopMount::mount(&theirs, &bench.scratch.file("kernel"), "noatime")?;
    let want = tell(Side::new(&program, kernel.dir(), &bench.scratch.dir("theirs")?)?)?;
    kernel.unmount()?;
    let mount = FuseMount::mount(bench.creamery(), &image, &mount_point(bench), "allow_other,noatime")?;
    let found = tell(Side::new(&program, mount.dir(), &bench.scratch.dir("ours")?)?)?;
    mount.unmount()?;
    btrfs_check(&image)?;
    let mut wrong = Vec::new();
    for (cell, (want, found)) in cells.iter().zip(want.iter().zip(&found)) {
        if want.state != found.state || want.said != found.said && difference(cell).is_none() {
            let Cell { number, operation, caller, way, object } = cell;
            let (operation, caller, way) = (operation.0, caller.0, WAYS[*way]);
            wrong.push(format!(
                "{number}: {operation} of {object} by {caller}, {way}\n Linux: {want:?}\n  ours: {found:?}"
            ));
        }
    }
    ensure!(wrong.is_empty(), "{} of {} cells differ:\n{}", wrong.len(), cells.len(), wrong.join("\n"));
    Ok(())
}

/// A subvolume takes no ACL from the directory that it is made in, and the bits of the umask are taken from its mode.
fn default_acls(bench: &Bench) -> Result<()> {
    for_everybody(bench)?;
    let program = compile(bench)?;
    let made = |dir: &Path| -> Result<String> {
        std::fs::create_dir(dir.join("d"))?;
        Run::new("setfacl").args(["-d", "-m", "u:55:rwx,g::rwx,o::rwx", "d"]).within(dir).ok()?;
        let script = "umask 027; PROGRAM create d one; mkdir d/one/plain; getfacl -n d/one d/one/plain";
        let script = script.replace("PROGRAM", &program.to_string_lossy());
        Ok(Run::new("sh").args(["-c", &script]).within(dir).ok()?.stdout_text())
    };
    let (image, theirs) = (bench.scratch.file("disk.img"), bench.scratch.file("theirs.img"));
    for image in [&image, &theirs] {
        mkfs_empty(bench.creamery(), &[], "300M", image)?;
    }
    let kernel = LoopMount::mount(&theirs, &bench.scratch.file("kernel"), "noatime")?;
    let want = made(kernel.dir())?;
    kernel.unmount()?;
    let mount = FuseMount::mount(bench.creamery(), &image, &mount_point(bench), "")?;
    let found = made(mount.dir())?;
    mount.unmount()?;
    ensure!(want == found, "--- Linux ---\n{want}\n--- ours ---\n{found}");
    btrfs_check(&image)
}

/// The server connects to the socket that a control names for callers alone that may administrate: it would come there as root.
fn sockets(bench: &Bench) -> Result<()> {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};
    for_everybody(bench)?;
    let program = compile(bench)?;
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "300M", &image)?;
    let mount = FuseMount::mount(bench.creamery(), &image, &mount_point(bench), "allow_other")?;
    let name = format!("creamery-callers-{}", std::process::id());
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
    listener.set_nonblocking(true)?;
    let container: &[&str] = &["unshare", "--user", "--map-root-user", "--"];
    let nobody = [&["setpriv"][..], &AS_NOBODY].concat();
    for (caller, words, is_told) in
        [("nobody", &nobody[..], false), ("a container", container, false), ("root", &["env"], true)]
    {
        let run = Run::new(words[0]).args(&words[1..]).arg(&program).args(["watch", ".", &name]);
        let said = run.within(mount.dir()).ok()?.stdout_text();
        let came = listener.accept().is_ok();
        let want = if is_told { "ok 0" } else { "error 1" };
        ensure!(said.trim() == want && came == is_told, "{caller}: {said}, and the server came: {came}");
    }
    drop(listener);
    mount.unmount()
}
