//! The lines of the first page, typed by an ordinary user on a system with only the packages. Each role begins with these lines, and goes
//! on with its own work.
//!
//! The system has no shell: the first page needs none. Debian's package `fuse3`, which ours recommends, brings FUSE.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use creamery_testkit::{Finished, Run, Scratch, btrfs_check};

use super::super::debian::path;
use super::super::parts::Parts;
use creamery_workspace::read;

/// The user id, and the id of the group of that name.
const ADA: &str = "1000";
const HOME: &str = "/home/ada";
/// Offset of the first superblock, bytes.
const SUPERBLOCK: usize = 64 << 10;
/// Size of a data block, bytes.
const SECTOR: usize = 4096;
const SEARCHED: &str = "PATH=/usr/bin:/bin";

type Role = fn(&System) -> Result<()>;
const ROLES: [(&str, Role); 4] = [
    ("image builder", image_builder),
    ("desktop user", desktop_user),
    ("rescuer", rescuer),
    ("sysadmin", sysadmin),
];

pub(super) fn tried(_: &Parts, out: &Path) -> Result<()> {
    let lines = lines_of_readme()?;
    for (name, role) in ROLES {
        let system = System::new(name, out)?;
        system.begin(&lines).with_context(|| format!("{name}: the lines of README.md"))?;
        role(&system).with_context(|| name)?;
    }
    Ok(())
}

/// The lines behind the prompt in the README's first block of commands, without their comments.
fn lines_of_readme() -> Result<Vec<String>> {
    let page = read("README.md")?;
    let (_, behind) = page.split_once("```console\n").context("README.md has a block of commands")?;
    let (block, _) = behind.split_once("```").context("the block ends")?;
    let lines = block.lines().filter_map(|line| line.strip_prefix("$ "));
    let lines: Vec<String> =
        lines.map(|line| line.split(" # ").next().unwrap_or(line).trim().to_owned()).collect();
    ensure!(lines.len() == 6 && lines.iter().all(|line| line.starts_with("creamery ")), "{lines:?}");
    Ok(lines)
}

/// A root folder with the packages `creamery` and `fuse3`, and the home of a user.
struct System {
    scratch: Scratch,
}

impl System {
    fn new(name: &str, out: &Path) -> Result<Self> {
        let system = Self { scratch: Scratch::new(name)? };
        for folder in
            ["var/lib/dpkg/updates", "var/lib/dpkg/info", "dev", "proc", "etc", "bin", "tmp", "home/ada"]
        {
            fs::create_dir_all(system.outside("/").join(folder))?;
        }
        fs::write(system.outside("/var/lib/dpkg/status"), "")?;
        let root = format!("--root={}", system.outside("/").display());
        Run::new("dpkg").args([&root, "--log=/dev/null", "--install"]).arg(path(out)).ok()?;
        system.install_fuse()?;
        fs::write(system.outside("/etc/passwd"), format!("root:x:0:0::/:\nada:x:{ADA}:{ADA}::{HOME}:\n"))?;
        fs::write(system.outside("/etc/group"), format!("root:x:0:\nada:x:{ADA}:\n"))?;
        let home = system.home("");
        for (file, content) in [
            ("rootfs/etc/hostname", "dairy\n"),
            ("rootfs/etc/motd", "welcome\n"),
            ("more/app/data", "0123456789"),
        ] {
            let file = home.join(file);
            fs::create_dir_all(file.parent().context("in a folder")?)?;
            fs::write(file, content.repeat(3000))?;
        }
        symlink("hostname", home.join("rootfs/etc/name"))?;
        fs::create_dir(home.join("rootfs/srv"))?;
        fs::create_dir(home.join("mnt"))?;
        Run::new("chown").args(["-R", "-h", &format!("{ADA}:{ADA}")]).arg(&home).ok()?;
        Ok(system)
    }

    /// Installs the files of FUSE's package, and the device.
    fn install_fuse(&self) -> Result<()> {
        let helper = Path::new("/usr/bin/fusermount3");
        let needed = Run::new("ldd").arg(helper).ok()?.stdout_text();
        let libraries = needed
            .lines()
            .filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')).map(PathBuf::from));
        for file in libraries.chain([helper.to_owned()]) {
            let to = self.outside(file.to_str().context("a path of plain letters")?);
            fs::create_dir_all(to.parent().context("in a folder")?)?;
            fs::copy(&file, to)?;
        }
        fs::set_permissions(self.outside("/usr/bin/fusermount3"), Permissions::from_mode(0o4755))?;
        Run::new("mknod").args(["-m", "666"]).arg(self.outside("/dev/fuse")).args(["c", "10", "229"]).ok()?;
        Run::new("mknod").args(["-m", "666"]).arg(self.outside("/dev/null")).args(["c", "1", "3"]).ok()?;
        symlink("/proc/self/mounts", self.outside("/etc/mtab"))?;
        Run::new("mount").args(["-t", "proc", "proc"]).arg(self.outside("/proc")).ok().map(drop)
    }

    /// The outside path of `path`, which is absolute inside.
    fn outside(&self, path: &str) -> PathBuf {
        self.scratch.file("root").join(path.trim_start_matches('/'))
    }

    /// The outside path of a file in the user's home.
    fn home(&self, path: &str) -> PathBuf {
        self.outside(HOME).join(path)
    }

    /// A line that the user types in the home: variables, a program, its words.
    fn typed(&self, line: &str) -> Run {
        let mut words = line.split_whitespace().peekable();
        let mut inside = Run::new("env").args(["-i", SEARCHED, &format!("HOME={HOME}")]);
        while let Some(variable) = words.next_if(|word| word.contains('=')) {
            inside = inside.arg(variable);
        }
        let root = format!("--root={}", self.outside("/").display());
        let inside =
            inside.args(["unshare", &root, &format!("--wd={HOME}"), "--setgid", ADA, "--setuid", ADA]);
        // Without a shell the program is looked up here.
        let program = match words.next() {
            Some("creamery") | None => "/usr/bin/creamery".to_owned(),
            Some(other) => format!("/usr/lib/creamery/bin/{other}"),
        };
        inside.arg(program).args(words)
    }

    /// Types a line, which must succeed.
    fn types(&self, line: &str) -> Result<Finished> {
        self.typed(line).ok().with_context(|| format!("$ {line}"))
    }

    /// Runs another program of the user with `script` in the home.
    fn does(&self, script: &str) -> Result<Finished> {
        let user = Run::new("setpriv").args([format!("--reuid={ADA}"), format!("--regid={ADA}")]);
        user.args(["--clear-groups", "--", "sh", "-ec", script]).within(self.home("")).ok()
    }

    /// Types the lines of the first page, and checks the claimed effect of each.
    fn begin(&self, lines: &[String]) -> Result<()> {
        for line in lines {
            let said = self.types(line)?;
            ensure!(said.stderr.is_empty(), "$ {line}\n{said}");
            if line.starts_with("creamery ls") {
                let listed = said.stdout_text();
                ensure!(listed.contains("hostname") && listed.contains("name -> hostname"), "{listed}");
            }
            if line.starts_with("creamery mount") {
                self.does("cat mnt/etc/hostname > /dev/null && echo mine > mnt/etc/mine && mkdir mnt/made")?;
            }
        }
        let image = self.home("disk.img");
        btrfs_check(&image)?;
        self.types("creamery cp -a disk.img:/ ./first")?;
        let first = self.home("first");
        ensure!(fs::read_to_string(first.join("etc/mine"))? == "mine\n", "what was written on the mount");
        let data = fs::read(first.join("srv/more/app/data"))?;
        ensure!(data == fs::read(self.home("more/app/data"))?, "what was copied into the image");
        for file in ["etc/hostname", "etc/motd"] {
            let source = self.home("rootfs").join(file);
            ensure!(fs::read(first.join(file))? == fs::read(&source)?, "another {file}");
            let owner = |path: &Path| fs::metadata(path).map(|found| (found.uid(), found.mtime()));
            ensure!(owner(&first.join(file))? == owner(&source)?, "{file} has another owner or time");
        }
        ensure!(fs::read_link(first.join("etc/name"))? == Path::new("hostname"), "the link leads elsewhere");
        Ok(())
    }
}

/// Two builds are equal bytes, and an archive of the image has its content.
fn image_builder(system: &System) -> Result<()> {
    let build = "SOURCE_DATE_EPOCH=1700000000 creamery mkfs -q -U 0d6f2b5c-6d0b-4c8e-9a39-5b2f7b0c8f11 --shrink --compress zstd --rootdir ./rootfs";
    for image in ["one.img", "two.img"] {
        system.types(&format!("{build} {image}"))?;
    }
    let image = system.home("one.img");
    ensure!(fs::read(&image)? == fs::read(system.home("two.img"))?, "two builds of one folder differ");
    btrfs_check(&image)?;
    let same = system.types("creamery diff one.img two.img")?;
    ensure!(same.stdout.is_empty(), "{same}");
    let differs = system.typed("creamery diff one.img disk.img").output()?;
    ensure!(differs.code == Some(1) && differs.stdout_text().contains("A\tmade"), "{differs}");
    system.types("creamery tar -c -f out.tar one.img:/")?;
    let listed = system.types("creamery tar -t -f out.tar")?.stdout_text();
    ensure!(listed.contains("etc/hostname"), "{listed}");
    Ok(())
}

/// A mount is found by its image, refuses a second one, and names the processes that keep it busy.
fn desktop_user(system: &System) -> Result<()> {
    system.types("creamery mkfs -q -b 300M empty.img")?;
    system.types("creamery mount -o compress=zstd empty.img ./mnt")?;
    system.does("cp -a rootfs mnt/copy && touch mnt/x && ln mnt/x mnt/y")?;
    let mounts = system.types("creamery mounts")?.stdout_text();
    ensure!(mounts.contains("empty.img") && mounts.contains("rw"), "{mounts}");
    let again = system.typed("creamery mount empty.img ./mnt").output()?;
    ensure!(again.code == Some(1) && again.stderr_text().lines().count() == 1, "{again}");
    system.types("creamery subvolume snapshot -r ./mnt ./mnt/before")?;
    system.types("creamery sync ./mnt")?;
    system.types("creamery umount empty.img")?;
    btrfs_check(&system.home("empty.img"))?;
    let listed = system.types("creamery ls empty.img:/before")?.stdout_text();
    ensure!(listed == "copy\nx\ny\n", "{listed}");
    let page = system.types("creamery help mount-options")?.stdout_text();
    ensure!(page.contains("compress=ALGORITHM:LEVEL"), "{page}");
    Ok(())
}

/// Data with a damaged sector, a file that is gone, and a lost superblock.
fn rescuer(system: &System) -> Result<()> {
    let page = system.types("creamery help rescue")?.stdout_text();
    ensure!(page.contains("--ignore-errors") && page.contains("super-recover"), "{page}");
    let image = system.home("disk.img");
    let mut bytes = fs::read(&image)?;
    let sector = bytes.chunks_exact_mut(SECTOR).find(|sector| sector.starts_with(b"01234567890123456789"));
    sector.context("the data lies in sectors")?.fill(0x5a);
    fs::write(&image, &bytes)?;
    let copied = system.typed("creamery cp -a --ignore-errors disk.img:/ ./out").output()?;
    let said = copied.stderr_text();
    ensure!(
        copied.code == Some(1) && said.contains("srv/more/app/data") && said.contains("are lost"),
        "{copied}"
    );
    ensure!(system.home("out/etc/hostname").is_file(), "what is whole came, too");
    system.types("creamery rm disk.img:/etc/motd")?;
    let gone = system.types("creamery undelete disk.img")?.stdout_text();
    ensure!(gone.contains("/etc/motd"), "{gone}");
    system.types("creamery undelete disk.img:/etc/motd ./motd")?;
    ensure!(
        fs::read(system.home("motd"))? == fs::read(system.home("rootfs/etc/motd"))?,
        "another file came back"
    );
    system.types("creamery history disk.img")?;
    system.typed("creamery report disk.img -o report.html").output()?;
    ensure!(fs::read_to_string(system.home("report.html"))?.contains("<svg"), "the report has no picture");
    let mut bytes = fs::read(&image)?;
    bytes[SUPERBLOCK..SUPERBLOCK + SECTOR].fill(0);
    fs::write(&image, &bytes)?;
    system.types("creamery ls disk.img:/etc")?;
    system.typed("creamery rescue super-recover -y disk.img").output()?;
    ensure!(
        system.types("creamery filesystem df disk.img")?.stderr.is_empty(),
        "the superblock is not mended"
    );
    Ok(())
}

/// Administration with the command names of btrfs-progs.
fn sysadmin(system: &System) -> Result<()> {
    let usage = system.types("btrfs filesystem usage disk.img")?.stdout_text();
    ensure!(usage.contains("Device size"), "{usage}");
    system.types("btrfs subvolume create disk.img:/work")?;
    let list = system.types("btrfs subvolume list disk.img")?.stdout_text();
    ensure!(list.ends_with("path work\n"), "{list}");
    system.types("mkfs.btrfs -q -L data -b 200M data.img")?;
    let label = system.types("btrfs filesystem label data.img")?.stdout_text();
    ensure!(label == "data\n", "{label}");
    system.types("btrfs check data.img")?;
    let missing = system.typed("btrfs send disk.img:/work").output()?;
    ensure!(missing.code == Some(1) && missing.stderr_text().contains("send"), "{missing}");
    for image in ["disk.img", "data.img"] {
        btrfs_check(&system.home(image))?;
    }
    Ok(())
}
