//! The operations of a mount by caller, by the mount that they come through, and by how the subvolume is marked: each cell of the table beside
//! Linux. The rows are in `callers_operations`.

use std::fmt::Write as _;
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, Judge, LoopMount, Run, btrfs_check, one_in, seed_of};

use crate::callers_operations::{Operation, operations};
use crate::subvolumes::controls::compile;
use crate::subvolumes::live::{AS_NOBODY, for_everybody, mount_point};
use crate::support::{MOUNTED, mkfs_empty};

pub(crate) fn cases() -> Vec<Case> {
    let tools = ["setpriv", "unshare", "cc", "chattr", "setfacl", "setfattr"].map(Judge::Tool);
    let tools = [&MOUNTED[..], &tools].concat();
    vec![
        Case::new("callers/as-on-linux", &tools, beside_linux),
        Case::new("callers/default-acls-stay-outside-of-subvolumes", &tools, default_acls),
        Case::new("callers/a-stranger-names-no-socket", &tools, sockets),
    ]
}

const OWNER: u32 = 1000;

/// Callers, by the words before their command. The third is what root of a container is.
const CALLERS: [(&str, &[&str]); 7] = [
    ("root", &[]),
    ("root without capabilities", &["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--"]),
    ("root of another user namespace", &["unshare", "--user", "--map-root-user", "--"]),
    ("the owner", &["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", "--"]),
    ("one of the group", &["setpriv", "--reuid=1001", "--regid=1001", "--groups=1000", "--"]),
    ("a stranger", &["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]),
    ("a stranger with CAP_SYS_ADMIN", &ADMINISTRATOR),
];

const ADMINISTRATOR: [&str; 7] = [
    "setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
    "--inh-caps=+sys_admin",
    "--ambient-caps=+sys_admin",
    "--",
];

/// Mounts: the filesystem's own, and two of one of its directories.
const WAYS: [&str; 3] = ["mount", "bind", "read-only bind"];

/// Subvolumes: as they are made, read-only, immutable, append-only.
const OBJECTS: [&str; 4] = ["plain", "read-only", "immutable", "append-only"];

/// One cell.
struct Cell {
    number: usize,
    operation: Operation,
    caller: (&'static str, &'static [&'static str]),
    way: usize,
    object: &'static str,
}

/// A share of all cells.
fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for operation in operations() {
        for caller in CALLERS {
            for way in 0..WAYS.len() {
                for object in OBJECTS {
                    cells.push(Cell { number: cells.len(), operation, caller, way, object });
                }
            }
        }
    }
    let share = one_in(15);
    let first = usize::try_from(seed_of("callers") % share as u64).expect("a small number");
    cells.into_iter().skip(first).step_by(share).collect()
}

/// What a command says, and its status with what is there then.
#[derive(PartialEq, Eq, Debug)]
struct CommandOutcome {
    said: String,
    state: String,
}

/// A filesystem and its three ways.
struct CallersFilesystem {
    /// Sends Linux' controls.
    program: PathBuf,
    /// The program under test.
    creamery: PathBuf,
    is_linux: bool,
    ways: [PathBuf; 3],
}

impl CallersFilesystem {
    /// Binds the directory `pub` of what is mounted at `dir` twice, below `beside`.
    fn new((program, creamery): (&Path, &Path), is_linux: bool, dir: &Path, beside: &Path) -> Result<Self> {
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
        let (program, creamery) = (program.to_owned(), creamery.to_owned());
        Ok(Self { program, creamery, is_linux, ways })
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
        if cell.operation.has_file {
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

    /// The words of a shell for a command.
    fn command(&self, command: &str, name: &str, id: &str) -> String {
        let words = command.split_inclusive([' ', '/', '\'']).map(|word| {
            let stem = word.trim_end_matches([' ', '/', '\'']);
            let meant = match stem {
                "S" => name.to_owned(),
                "S.renamed" | "S.snapshot" => stem.replacen('S', name, 1),
                "ID" => id.to_owned(),
                "PROGRAM" => self.program.display().to_string(),
                "BTRFS" if self.is_linux => "btrfs".to_owned(),
                "BTRFS" | "CREAMERY" => self.creamery.display().to_string(),
                _ => stem.to_owned(),
            };
            meant + &word[stem.len()..]
        });
        words.collect()
    }

    /// What comes of a cell.
    fn run(&self, cell: &Cell) -> Result<CommandOutcome> {
        let (id, name) = (self.make(cell)?, format!("s{}", cell.number));
        let Operation { command, on_linux, .. } = cell.operation;
        let command = self.command(on_linux.filter(|_| self.is_linux).unwrap_or(command), &name, &id);
        let mut words = cell.caller.1.to_vec();
        words.extend(["sh", "-c", &command]);
        let run = Run::new(words[0]).args(&words[1..]).within(&self.ways[cell.way]).env("LC_ALL", "C");
        let said = run.output()?;
        let status = if cell.operation.prints {
            format!("{:?}", said.code)
        } else {
            format!("{}", said.code == Some(0))
        };
        let state = format!("status {status} {}", self.state(&name)?);
        if !cell.operation.undo.is_empty() {
            let undo = self.command(cell.operation.undo, &name, &id);
            Run::new("sh").args(["-c", &undo]).within(&self.ways[0]).output()?;
        }
        let said = format!("{}{}", said.stdout_text(), said.stderr_text());
        Ok(CommandOutcome { said: said.replace(&format!("{id} "), "ID "), state })
    }

    /// What is there behind a cell.
    fn state(&self, name: &str) -> Result<String> {
        let mut all = String::new();
        let there = |name: &str| std::fs::symlink_metadata(self.ways[0].join(name));
        let places = [
            name.to_owned(),
            format!("{name}.renamed"),
            format!("{name}.snapshot"),
            format!("other/{name}"),
            format!("{name}/new"),
        ];
        for place in places {
            if let Ok(meta) = there(&place) {
                let _ = write!(all, "{place}: {:o} {}:{}; ", meta.mode(), meta.uid(), meta.gid());
            }
        }
        let file = format!("{name}/file");
        if let Ok(meta) = there(&file) {
            let (mode, owner) = (meta.mode(), (meta.uid(), meta.gid()));
            let _ = write!(all, "file: {mode:o} {owner:?} {} bytes, {} names; ", meta.len(), meta.nlink());
            let look = format!("getfattr -d -m - {file} | grep -v ^#; lsattr {file} | cut -d ' ' -f 1");
            let looked = Run::new("sh").args(["-c", &look]).within(&self.ways[0]).output()?;
            let _ = write!(all, "{}; ", looked.stdout_text());
        }
        let _ = write!(all, "{}", self.control(&["flags", name]).unwrap_or_default());
        Ok(all)
    }

    fn unbind(&self) -> Result<()> {
        self.ways[1..]
            .iter()
            .try_for_each(|way| Run::new("umount").args(["-i"]).arg(way).again_while_busy().ok().map(drop))
    }
}

fn said_no(outcome: &CommandOutcome) -> bool {
    !["status Some(0) ", "status true "].iter().any(|yes| outcome.state.starts_with(yes))
}

/// Whether a cell may differ from Linux, for a reason that docs/use/mount.md has.
fn may_differ(cell: &Cell, want: &CommandOutcome, found: &CommandOutcome) -> bool {
    // A read-only subvolume of Linux takes an ACL all the same.
    let takes_acl = cell.operation.name == "set an ACL" && cell.object == "read-only";
    if takes_acl && said_no(found) {
        return true;
    }
    // The kernel looks at the permissions before it asks the server for the marks of the subvolume: of two reasons it names the other one.
    let are_refused = said_no(want) && cell.object != "plain";
    want.state == found.state && (!cell.operation.prints || are_refused)
}

fn beside_linux(bench: &Bench) -> Result<()> {
    let creamery = for_everybody(bench)?;
    let program = compile(bench)?;
    let programs = (&*program, &*creamery);
    let (image, theirs) = (bench.scratch.file("disk.img"), bench.scratch.file("theirs.img"));
    for image in [&image, &theirs] {
        mkfs_empty(bench.creamery(), &[], "1G", image)?;
    }
    let cells = cells();
    let tell = |side: CallersFilesystem| -> Result<Vec<CommandOutcome>> {
        let said = cells.iter().map(|cell| side.run(cell)).collect::<Result<_>>();
        side.unbind()?;
        said
    };
    let kernel = LoopMount::mount(&theirs, &bench.scratch.file("kernel"), "noatime")?;
    let want = tell(CallersFilesystem::new(programs, true, kernel.dir(), &bench.scratch.dir("theirs")?)?)?;
    kernel.unmount()?;
    let mount = FuseMount::mount(bench.creamery(), &image, &mount_point(bench), "allow_other,noatime")?;
    let found = tell(CallersFilesystem::new(programs, false, mount.dir(), &bench.scratch.dir("ours")?)?)?;
    mount.unmount()?;
    btrfs_check(&image)?;
    let mut wrong = Vec::new();
    for (cell, (want, found)) in cells.iter().zip(want.iter().zip(&found)) {
        if want != found && !may_differ(cell, want, found) {
            let Cell { number, operation, caller, way, object } = cell;
            let (operation, caller, way) = (operation.name, caller.0, WAYS[*way]);
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
