//! PostgreSQL as Debian installs it: a cluster in any folder, its server, and clients.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use creamery_testkit::{Run, Scratch, Signal, signal, until};

use crate::install::install_packages;

/// The folder with one folder for each version.
const INSTALLED: &str = "/usr/lib/postgresql";
const PACKAGE: &str = "postgresql";
/// The user of the server, which refuses to run as the superuser.
const USER: &str = "postgres";
/// Settings: small, log files reused often, no network.
const SETTINGS: [&str; 5] =
    ["listen_addresses=", "shared_buffers=8MB", "min_wal_size=4MB", "max_wal_size=8MB", "max_connections=20"];
/// Rows and transactions of a client: more than any round waits for.
const ENDLESS: u64 = 50_000;

/// The programs of PostgreSQL, and a folder outside of all mounts for their socket and log.
pub(super) struct Postgres {
    programs: PathBuf,
    folder: PathBuf,
    settings: Vec<String>,
}

impl Postgres {
    /// Finds PostgreSQL, and installs it if it is missing.
    pub(super) fn find(scratch: &Scratch, settings: &[&str]) -> Result<Self> {
        if newest().is_none() {
            install_packages(&[PACKAGE])?;
        }
        let programs = newest().with_context(|| format!("no PostgreSQL in {INSTALLED}"))?;
        let folder = scratch.dir("postgres")?;
        Run::new("chown").arg(USER).arg(&folder).ok()?;
        let settings = SETTINGS.iter().chain(settings).map(|&setting| setting.to_owned()).collect();
        Ok(Self { programs, folder, settings })
    }

    /// Words of setpriv(1) that run one of its programs as its user.
    fn words(&self, program: &str) -> Vec<OsString> {
        let user = ["--reuid", USER, "--regid", USER, "--init-groups"].map(OsString::from);
        user.into_iter().chain([self.programs.join(program).into()]).collect()
    }

    fn run(&self, program: &str) -> Run {
        Run::new("setpriv").args(self.words(program)).within("/")
    }

    /// A client program that connects to the server.
    fn ask_by(&self, program: &str) -> Run {
        self.run(program).arg("-h").arg(&self.folder)
    }

    /// Makes a cluster in the empty folder `data`, with checksums on each page.
    pub(super) fn make_cluster(&self, data: &Path) -> Result<()> {
        Run::new("chown").arg(USER).arg(data).ok()?;
        self.run("initdb").args(["-k", "-A", "trust", "--wal-segsize=1", "-D"]).arg(data).ok().map(drop)
    }

    /// Starts the server, and returns when it answers.
    pub(super) fn start(&self, data: &Path) -> Result<Server> {
        let log = self.folder.join("log");
        let file = File::create(&log)?;
        let mut command = Command::new("setpriv");
        command.args(self.words("postgres")).arg("-D").arg(data).arg("-k").arg(&self.folder);
        for setting in &self.settings {
            command.args(["-c", setting]);
        }
        command.current_dir("/").stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let mut server = Server { child: command.spawn().context("starting PostgreSQL")? };
        until("PostgreSQL to answer", || {
            if let Some(ended) = server.child.try_wait()? {
                bail!("PostgreSQL does not start, {ended}: {}", std::fs::read_to_string(&log)?);
            }
            Ok(self.ask_by("pg_isready").arg("-q").output()?.code == Some(0))
        })?;
        Ok(server)
    }

    pub(super) fn ask(&self, words: &str) -> Result<String> {
        let run = self.ask_by("psql").args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"]);
        Ok(run.input(words).ok()?.stdout_text())
    }

    /// Starts a client that inserts rows behind `last` by `insertion`, and notes each row that the server acknowledged.
    pub(super) fn start_client(
        &self,
        client: usize,
        last: u64,
        insertion: &dyn Fn(usize, u64) -> String,
    ) -> Result<Client> {
        let rows = last + 1..last + ENDLESS;
        let script: String =
            rows.map(|number| format!("{}\nSELECT {number};\n", insertion(client, number))).collect();
        let name = format!("client-{client}");
        let file = self.folder.join(format!("{name}.sql"));
        std::fs::write(&file, script)?;
        let words = ["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-f"];
        self.start_asking("psql", &name, last, |command| command.args(words).arg(&file))
    }

    /// Makes the tables of pgbench.
    pub(super) fn make_bench(&self) -> Result<()> {
        self.ask_by("pgbench").args(["-i", "-q", "-s", "1", USER]).ok().map(drop)
    }

    pub(super) fn start_bench(&self) -> Result<Client> {
        let count = ENDLESS.to_string();
        self.start_asking("pgbench", "bench", 0, |command| {
            command.args(["-n", "-c", "2", "-t", &count, USER])
        })
    }

    fn start_asking(
        &self,
        program: &str,
        name: &str,
        before: u64,
        words: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Result<Client> {
        let file = |what: &str| self.folder.join(format!("{name}.{what}"));
        let mut command = Command::new("setpriv");
        command.args(self.words(program)).arg("-h").arg(&self.folder);
        words(&mut command).current_dir("/").stdin(Stdio::null());
        command.stdout(File::create(file("told"))?).stderr(File::create(file("errors"))?);
        let child = command.spawn().with_context(|| format!("starting {program}"))?;
        Ok(Client { child, told: file("told"), errors: file("errors"), before })
    }

    /// Checks that the sums of pgbench agree, and that each index has each row of its table.
    pub(super) fn all_is_sound(&self) -> Result<()> {
        let said = self.ask(
            "SELECT (SELECT sum(abalance) FROM pgbench_accounts), (SELECT sum(bbalance) FROM pgbench_branches), \
             (SELECT sum(tbalance) FROM pgbench_tellers), (SELECT coalesce(sum(delta), 0) FROM pgbench_history);",
        )?;
        let sums: Vec<&str> = said.trim().split('|').collect();
        ensure!(sums.len() == 4 && sums.iter().all(|sum| *sum == sums[0]), "pgbench's sums: {said}");
        self.ask_by("pg_amcheck").args(["--heapallindexed", USER]).ok().map(drop)
    }

    /// Checks the checksums of a stopped cluster.
    pub(super) fn checksums_are_right(&self, data: &Path) -> Result<()> {
        self.run("pg_checksums").args(["--check", "-D"]).arg(data).ok().map(drop)
    }
}

fn newest() -> Option<PathBuf> {
    let versions = std::fs::read_dir(INSTALLED).ok()?.flatten();
    let number = |folder: &Path| folder.file_name()?.to_str()?.parse::<u32>().ok();
    let folders = versions.map(|entry| entry.path()).filter(|folder| folder.join("bin/postgres").is_file());
    Some(folders.max_by_key(|folder| number(folder))?.join("bin"))
}

/// A running server.
pub(super) struct Server {
    child: Child,
}

impl Server {
    /// Stops the server after it has written everything, and checks that it ended well.
    pub(super) fn stop(mut self) -> Result<()> {
        signal(Signal::INT, self.child.id())?;
        let ended = until_ended(&mut self.child, "PostgreSQL to end")?;
        ensure!(ended, "PostgreSQL did not end well");
        Ok(())
    }

    /// Stops the server at once, without further writes, and waits for all of its processes. It may have ended by itself.
    pub(super) fn stop_hard(mut self) -> Result<()> {
        if self.child.try_wait()?.is_none() {
            signal(Signal::QUIT, self.child.id())?;
        }
        until_ended(&mut self.child, "PostgreSQL to give up").map(drop)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // An ended server was waited for, so its process id may belong to another process.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = signal(Signal::QUIT, self.child.id());
            let _ = until_ended(&mut self.child, "PostgreSQL to give up");
        }
    }
}

/// A client that inserts until it fails.
pub(super) struct Client {
    child: Child,
    told: PathBuf,
    errors: PathBuf,
    before: u64,
}

impl Client {
    /// The last row that the server acknowledged so far. The client goes on.
    pub(super) fn told_by_now(&mut self) -> Result<u64> {
        if let Some(ended) = self.child.try_wait()? {
            bail!("a client ended by itself, {ended}: {}", std::fs::read_to_string(&self.errors)?);
        }
        self.told()
    }

    /// Waits until the client notices that the server is gone. Returns the last acknowledged row.
    pub(super) fn until_it_fails(mut self) -> Result<u64> {
        let ended = until_ended(&mut self.child, "a client to notice")?;
        ensure!(!ended, "a client did not notice");
        self.told()
    }

    fn told(&self) -> Result<u64> {
        let told = std::fs::read_to_string(&self.told)?;
        let whole = told.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
        Ok(whole.filter_map(|line| line.parse().ok()).next_back().unwrap_or(self.before))
    }
}

/// Waits for the end of `child`; returns whether it succeeded.
fn until_ended(child: &mut Child, what: &str) -> Result<bool> {
    let mut status = None;
    until(what, || {
        status = child.try_wait()?;
        Ok(status.is_some())
    })?;
    Ok(status.is_some_and(|status| status.success()))
}
