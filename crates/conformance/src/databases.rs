//! Databases on a mount whose server is killed: what a client was told to be committed is there, by our mount and by Linux'.
//!
//! All that counts here is what fsync(2) promises. PostgreSQL is in `cargo xtask databases`.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{
    FuseMount, Judge, LoopMount, Random, Run, Signal, btrfs_check, daemon, rounds, seed_of, signal, until,
};
use rustix::fs::IFlags;

use crate::support::{MOUNTED, mkfs_empty};

/// A way of SQLite to commit.
#[derive(Clone, Copy)]
struct Journal {
    case: &'static str,
    mode: &'static str,
    /// The word of `PRAGMA synchronous` with which what it tells is durable.
    synchronous: &'static str,
    /// Whether SQLite tells of a commit, too, when it could not open the directory to sync it: then a row counts if the server
    /// answers behind it.
    hides_dead_servers: bool,
}

const fn journal(case: &'static str, mode: &'static str) -> Journal {
    Journal { case, mode, synchronous: "FULL", hides_dead_servers: false }
}

const WAL: Journal = journal("databases/sqlite-wal-with-a-killed-server", "wal");
const TRUNCATE: Journal = journal("databases/sqlite-truncate-with-a-killed-server", "truncate");
const PERSIST: Journal = journal("databases/sqlite-persist-with-a-killed-server", "persist");
/// FULL does not sync the directory when the journal is removed.
const DELETE: Journal = Journal {
    case: "databases/sqlite-delete-with-a-killed-server",
    mode: "delete",
    synchronous: "EXTRA",
    hides_dead_servers: true,
};

/// How the directory of the database is marked.
const MARKED: [IFlags; 2] = [IFlags::empty(), IFlags::NOCOW];
const CLIENTS: usize = 2;
/// More rows than any round waits for.
const ROWS: u64 = 20_000;

pub(crate) fn cases() -> Vec<Case> {
    let judges = [&MOUNTED[..], &[Judge::Tool("sqlite3")]].concat();
    let of_each = |journal: Journal| {
        Case::new(journal.case, &judges, move |bench| {
            for marked in MARKED {
                let database = Database::new(bench, journal, marked)?;
                database.killed_and_recovered(bench).with_context(|| format!("marked {marked:?}"))?;
            }
            Ok(())
        })
    };
    [WAL, DELETE, TRUNCATE, PERSIST].into_iter().map(of_each).collect()
}

/// A database on an image, and how its clients commit.
struct Database {
    journal: Journal,
    image: PathBuf,
    dir: PathBuf,
}

/// Where it lies on a mount.
const FOLDER: &str = "databases";
const FILE: &str = "databases/rows.db";
/// A file in the folder that can be opened as long as the server lives.
const ANSWERS: &str = "answers";
/// What the row `number` of `client` has.
const TEXT: &str = "client || replace(hex(zeroblob(number * 37 % 1500)), '0', char(97 + number % 26))";

impl Database {
    fn new(bench: &Bench, journal: Journal, marked: IFlags) -> Result<Self> {
        let name = if marked.is_empty() { "disk.img" } else { "in-place.img" };
        let (image, dir) = (bench.scratch.file(name), bench.scratch.file("fuse"));
        mkfs_empty(bench.creamery(), &[], "256M", &image)?;
        let database = Self { journal, image, dir };
        let mount = database.mount(bench)?;
        let folder = mount.dir().join(FOLDER);
        std::fs::create_dir(&folder)?;
        if !marked.is_empty() {
            rustix::fs::ioctl_setflags(File::open(&folder)?, marked)?;
        }
        std::fs::write(folder.join(ANSWERS), "")?;
        let table = "CREATE TABLE rows(client, number, text, PRIMARY KEY(client, number));";
        database.ask(mount.dir(), &format!("{}{table}", database.settings()))?;
        let made = rustix::fs::ioctl_getflags(File::open(mount.dir().join(FILE))?)?;
        ensure!(made.contains(marked), "the database is marked {made:?}");
        mount.unmount()?;
        Ok(database)
    }

    fn mount(&self, bench: &Bench) -> Result<FuseMount> {
        FuseMount::mount(bench.creamery(), &self.image, &self.dir, "")
    }

    /// A log of changes is emptied often, so that servers are killed beside that, too.
    fn settings(&self) -> String {
        let Journal { mode, synchronous, .. } = self.journal;
        format!(
            "PRAGMA journal_mode={mode};\nPRAGMA synchronous={synchronous};\nPRAGMA wal_autocheckpoint=20;\n"
        )
    }

    fn ask(&self, mount: &Path, words: &str) -> Result<String> {
        Ok(Run::new("sqlite3")
            .args(["-batch", "-bail"])
            .arg(mount.join(FILE))
            .input(words)
            .ok()?
            .stdout_text())
    }

    fn killed_and_recovered(&self, bench: &Bench) -> Result<()> {
        let mut random = Random::new(seed_of(self.journal.mode));
        let mut rows = [0; CLIENTS];
        for round in 0..rounds(2, 12) {
            let enough = 1 + random.below(150);
            let told = self.insert_and_kill(bench, rows, enough).with_context(|| format!("round {round}"))?;
            // Linux reads the logs by itself, and so does SQLite on its mount.
            let copy = bench.scratch.file("copy.img");
            Run::new("cp").arg("--sparse=always").arg(&self.image).arg(&copy).ok()?;
            btrfs_check(&copy)?;
            let linux = LoopMount::mount(&copy, &bench.scratch.file("kernel"), "")?;
            self.recovered(linux.dir(), told).context("by Linux")?;
            linux.unmount()?;
            btrfs_check(&copy)?;
            let mount = self.mount(bench)?;
            rows = self.recovered(mount.dir(), told)?;
            mount.unmount()?;
            btrfs_check(&self.image)?;
        }
        let linux = LoopMount::mount(&self.image, &bench.scratch.file("kernel"), "")?;
        self.recovered(linux.dir(), rows).context("by Linux in the end")?;
        linux.unmount()
    }

    /// The clients insert rows behind those that are there. The server is killed when they have been told of `enough` together. Returns
    /// the last row that each was told of.
    fn insert_and_kill(&self, bench: &Bench, rows: [u64; CLIENTS], enough: u64) -> Result<[u64; CLIENTS]> {
        let mount = self.mount(bench)?;
        let mut clients = Vec::new();
        for (client, last) in rows.into_iter().enumerate() {
            clients.push(self.client(bench, mount.dir(), client, last)?);
        }
        until("the clients to be told of enough rows", || {
            let mut sum = 0;
            for client in &mut clients {
                sum += client.told()? - client.before;
                if let Some(ended) = client.child.try_wait()? {
                    bail!("a client ended by itself, {ended}: {}", std::fs::read_to_string(&client.errors)?);
                }
            }
            Ok(sum >= enough)
        })?;
        signal(Signal::KILL, daemon(&self.image)?)?;
        let mut told = [0; CLIENTS];
        for (client, told) in clients.iter_mut().zip(&mut told) {
            let ended = client.child.wait()?;
            ensure!(!ended.success(), "a client did not notice");
            *told = client.told()?;
        }
        drop(mount);
        Ok(told)
    }

    /// Its script and its answers lie outside of the mount. The program writes out what it has to say before it reads on.
    fn client(&self, bench: &Bench, mount: &Path, client: usize, last: u64) -> Result<Client> {
        let file = |what: &str| bench.scratch.file(&format!("client-{client}.{what}"));
        let told = match self.journal.hides_dead_servers {
            true => format!(" WHERE readfile('{}') IS NOT NULL", mount.join(FOLDER).join(ANSWERS).display()),
            false => String::new(),
        };
        let mut script = format!(".timeout 900000\n{}", self.settings());
        for number in last + 1..last + ROWS {
            let row = format!("SELECT {client} AS client, {number} AS number");
            script += &format!(
                "INSERT INTO rows SELECT client, number, {TEXT} FROM ({row}); SELECT 'row', {number}{told};\n"
            );
        }
        std::fs::write(file("sql"), script)?;
        let child = Command::new("sqlite3")
            .args(["-batch", "-bail"])
            .arg(mount.join(FILE))
            .stdin(File::open(file("sql"))?)
            .stdout(Stdio::from(File::create(file("told"))?))
            .stderr(Stdio::from(File::create(file("errors"))?))
            .spawn()?;
        Ok(Client { child, told: file("told"), errors: file("errors"), before: last })
    }

    /// The database is sound and has all that the clients were told of, and of each at most the one row that was on its way.
    /// Returns the last row of each.
    fn recovered(&self, mount: &Path, told: [u64; CLIENTS]) -> Result<[u64; CLIENTS]> {
        let mut words = format!("PRAGMA integrity_check; SELECT count(*) FROM rows WHERE text <> {TEXT};\n");
        for client in 0..CLIENTS {
            let of = format!("FROM rows WHERE client = {client}");
            words += &format!("SELECT count(*) {of}; SELECT ifnull(max(number), 0) {of};\n");
        }
        let said = self.ask(mount, &words)?;
        let mut lines = said.lines();
        let sound = (lines.next(), lines.next());
        ensure!(sound == (Some("ok"), Some("0")), "it is not sound: {said}");
        let numbers = lines.map(str::parse).collect::<Result<Vec<u64>, _>>()?;
        let mut rows = [0; CLIENTS];
        for (client, found) in numbers.chunks(2).enumerate() {
            let &[count, last] = found else { bail!("{said}") };
            let told = told[client];
            ensure!(
                count == last && (last == told || last == told + 1),
                "client {client} was told of {told} rows; there are {count}, the last is {last}"
            );
            rows[client] = last;
        }
        Ok(rows)
    }
}

/// One that inserts rows.
struct Client {
    child: Child,
    told: PathBuf,
    errors: PathBuf,
    /// The last row when it began.
    before: u64,
}

impl Client {
    /// The last row that it was told of. Other lines are answers to its settings.
    fn told(&self) -> Result<u64> {
        let told = std::fs::read_to_string(&self.told)?;
        let whole = told.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
        let last = whole.filter_map(|line| line.strip_prefix("row|")).next_back();
        Ok(last.map_or(Ok(self.before), str::parse)?)
    }
}
