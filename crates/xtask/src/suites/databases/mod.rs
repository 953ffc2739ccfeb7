//! `cargo xtask databases [--rounds N] [--seed S]`: PostgreSQL on a mount whose server is killed in the midst of its work.
//!
//! Two clients insert rows, and each notes outside of the mount what it was told to be committed; pgbench works beside them. When they
//! were told of enough, the server of the mount is killed, and PostgreSQL is stopped the hard way. Then PostgreSQL recovers twice: on
//! a copy of the image that Linux mounts, and on our mount. Each time every row is there that a client was told of, of each client at
//! most the one row beyond that was on its way, pgbench's sums agree, each index has each row of its table, and each page has its checksum.
//!
//! It is done with the log written as PostgreSQL does by itself, and past the kernel's cache, in directories as they come and in such
//! as are overwritten in place. SQLite has the same in the conformance tests (`databases/`).

mod postgres;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use creamery_testkit::{
    FuseMount, LoopMount, Program, Random, Run, Signal, btrfs_check, daemon, signal, until,
};

use self::postgres::{Client, Postgres};
use super::{OPTIONS, Stage, stage};

/// Of each kind.
const ROUNDS: u64 = 3;
/// The server is killed when the clients together were told of so many rows at most.
const ROWS_BEFORE: u64 = 600;
const CLIENTS: usize = 2;
/// Where the cluster lies on a mount.
const FOLDER: &str = "postgres";
/// What the row `number` of `client` has.
const TEXT: &str = "repeat(md5(client || '-' || number), 1 + number % 60)";

/// How PostgreSQL writes.
struct Kind {
    name: &'static str,
    /// Whether its directory is marked to be overwritten in place.
    in_place: bool,
    settings: &'static [&'static str],
}

/// The log past the kernel's cache: up to PostgreSQL 15 `open_datasync` is `O_DSYNC` with `O_DIRECT` where nobody else reads the log.
/// Newer ones have a setting for it, `debug_io_direct`; there the count of direct writes ends the run.
const DIRECT_LOG: [&str; 3] = ["wal_level=minimal", "max_wal_senders=0", "wal_sync_method=open_datasync"];

const KINDS: [Kind; 4] = [
    Kind { name: "as it comes", in_place: false, settings: &[] },
    Kind { name: "direct-log", in_place: false, settings: &DIRECT_LOG },
    Kind { name: "in-place", in_place: true, settings: &[] },
    Kind { name: "in-place, direct-log", in_place: true, settings: &DIRECT_LOG },
];

/// `cargo xtask databases`.
pub(crate) fn databases(words: &[&str]) -> Result<()> {
    let (rounds, seed) = parse(words)?;
    let mut random = Random::new(seed);
    for kind in &KINDS {
        let Stage { scratch, image, mount } = stage("databases")?;
        let postgres = Postgres::find(&scratch, kind.settings)?;
        let copy = scratch.file("copy.img");
        let case =
            Case { kind, creamery: Program::find()?, postgres, image, dir: mount.dir().to_owned(), copy };
        case.set_up(mount).with_context(|| format!("{}: setting up", kind.name))?;
        let mut rows = [0; CLIENTS];
        for round in 1..=rounds {
            let enough = 1 + random.below(ROWS_BEFORE);
            rows = case.round(rows, enough).with_context(|| format!("{}: round {round}", kind.name))?;
            println!(
                "PostgreSQL, {}: killed behind {enough} rows, recovered with all of {rows:?}",
                kind.name
            );
        }
    }
    Ok(())
}

/// A cluster on an image.
struct Case<'k> {
    kind: &'k Kind,
    creamery: Program,
    postgres: Postgres,
    image: PathBuf,
    dir: PathBuf,
    copy: PathBuf,
}

impl Case<'_> {
    fn mount(&self) -> Result<FuseMount> {
        FuseMount::mount(&self.creamery, &self.image, &self.dir, OPTIONS)
    }

    /// Makes the cluster, its tables, and those of pgbench.
    fn set_up(&self, mount: FuseMount) -> Result<()> {
        let data = mount.dir().join(FOLDER);
        std::fs::create_dir(&data)?;
        if self.kind.in_place {
            Run::new("chattr").arg("+C").arg(&data).ok()?;
        }
        self.postgres.make_cluster(&data)?;
        let marked = Run::new("lsattr").arg(data.join("PG_VERSION")).ok()?.stdout_text();
        let flags = marked.split_whitespace().next().unwrap_or_default();
        ensure!(flags.contains('C') == self.kind.in_place, "the files are marked {flags:?}");
        let server = self.postgres.start(&data)?;
        self.postgres.ask(
            "CREATE TABLE rows(client int, number int, text text, PRIMARY KEY(client, number)); \
             CREATE EXTENSION amcheck;",
        )?;
        self.postgres.make_bench()?;
        server.stop()?;
        mount.unmount()?;
        btrfs_check(&self.image)
    }

    /// Returns the last row of each client.
    fn round(&self, rows: [u64; CLIENTS], enough: u64) -> Result<[u64; CLIENTS]> {
        let told = self.insert_and_kill(rows, enough)?;
        Run::new("cp").arg("--sparse=always").arg(&self.image).arg(&self.copy).ok()?;
        btrfs_check(&self.copy)?;
        let linux = LoopMount::mount(&self.copy, &self.dir, "")?;
        self.recovered(linux.dir(), told).context("on Linux' mount")?;
        linux.unmount()?;
        btrfs_check(&self.copy)?;
        let mount = self.mount()?;
        let rows = self.recovered(mount.dir(), told).context("on our mount")?;
        mount.unmount()?;
        btrfs_check(&self.image)?;
        Ok(rows)
    }

    /// Returns the last row that each client was told of.
    fn insert_and_kill(&self, rows: [u64; CLIENTS], enough: u64) -> Result<[u64; CLIENTS]> {
        let mount = self.mount()?;
        let server = self.postgres.start(&mount.dir().join(FOLDER))?;
        let bench = self.postgres.start_bench()?;
        let mut clients = Vec::new();
        for (client, last) in rows.into_iter().enumerate() {
            clients.push(self.postgres.start_client(client, last, &insertion)?);
        }
        until("the clients to be told of enough rows", || {
            let told = clients.iter_mut().map(Client::told_by_now).sum::<Result<u64>>()?;
            Ok(told - rows.iter().sum::<u64>() >= enough)
        })?;
        self.direct_as_asked(mount.dir())?;
        signal(Signal::KILL, daemon(&self.image)?)?;
        let mut told = [0; CLIENTS];
        for (client, told) in clients.into_iter().zip(&mut told) {
            *told = client.until_it_fails()?;
        }
        bench.until_it_fails()?;
        server.stop_hard()?;
        drop(mount);
        Ok(told)
    }

    /// PostgreSQL asks for direct writes where its settings say so.
    fn direct_as_asked(&self, mount: &Path) -> Result<()> {
        let said = self.creamery.run(["stats", "--json"]).arg(mount).ok()?.stdout;
        let told: serde_json::Value = serde_json::from_slice(&said)?;
        let writes = told["filesystem"]["direct"]["writes"].as_u64().context("no count of direct writes")?;
        let is_direct = !self.kind.settings.is_empty();
        ensure!((writes > 0) == is_direct, "PostgreSQL has written {writes} times directly");
        Ok(())
    }

    /// Has PostgreSQL recover. What was told is there, and all is sound. Returns the last row of each client.
    fn recovered(&self, mount: &Path, told: [u64; CLIENTS]) -> Result<[u64; CLIENTS]> {
        let data = mount.join(FOLDER);
        let server = self.postgres.start(&data)?;
        let wrong = self.postgres.ask(&format!("SELECT count(*) FROM rows WHERE text <> {TEXT};"))?;
        ensure!(wrong.trim() == "0", "{wrong} rows are not what was written");
        let mut rows = [0; CLIENTS];
        for (client, rows) in rows.iter_mut().enumerate() {
            *rows = self.rows_of(client, told[client])?;
        }
        self.postgres.all_is_sound()?;
        server.stop()?;
        self.postgres.checksums_are_right(&data)?;
        Ok(rows)
    }

    fn rows_of(&self, client: usize, told: u64) -> Result<u64> {
        let words = format!("SELECT count(*), coalesce(max(number), 0) FROM rows WHERE client = {client};");
        let said = self.postgres.ask(&words)?;
        let Some((count, last)) = said.trim().split_once('|') else { bail!("{said}") };
        let (count, last): (u64, u64) = (count.parse()?, last.parse()?);
        ensure!(
            count == last && (last == told || last == told + 1),
            "client {client} was told of {told} rows; there are {count}, the last is {last}"
        );
        Ok(last)
    }
}

fn insertion(client: usize, number: u64) -> String {
    let row = format!("SELECT {client} AS client, {number} AS number");
    format!("INSERT INTO rows SELECT client, number, {TEXT} FROM ({row}) AS row;")
}

fn parse(words: &[&str]) -> Result<(u64, u64)> {
    let (mut rounds, mut seed) = (ROUNDS, 0);
    let mut words = words.iter();
    while let Some(&word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word} wants a value"));
        match word {
            "--rounds" => rounds = value()?.parse()?,
            "--seed" => seed = value()?.parse()?,
            _ => bail!("usage: cargo xtask databases [--rounds N] [--seed S]"),
        }
    }
    Ok((rounds, seed))
}
