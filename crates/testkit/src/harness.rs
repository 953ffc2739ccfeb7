//! Runs cases that may need a judge the host lacks.
//!
//! The standard test runner knows "passed" and "failed"; a case whose judge is missing would have to count as
//! passed. This one decides before the start, reports `skipped: <judge> missing`, and counts it as ignored in the
//! standard summary line. It also watches for hangs: a case that hangs (in a system call on a broken mount) gets its
//! mounts cut off by force, which makes the call fail and the case end.
//!
//! Cases that say that they are long start first, so that none of them is left for the end with nothing beside it.
//!
//! It understands the standard runner's arguments that matter: filters, `--exact`, `--skip`, `--list`, `--test-threads`.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use crate::{HANG, Judge, Judges, Program, Scratch};

/// When a case hangs; `CREAMERY_CASE_SECONDS` says otherwise, for cases that were asked for more than usual.
fn case_limit() -> Duration {
    let asked = std::env::var("CREAMERY_CASE_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    asked.map_or(HANG, Duration::from_secs)
}

type Body = dyn Fn(&Bench) -> Result<()> + Send + Sync;

/// One thing to be shown.
pub struct Case {
    name: String,
    needs: Vec<Judge>,
    body: Box<Body>,
    is_long: bool,
    preparation: Option<fn() -> Result<()>>,
}

impl Case {
    /// A case `name` that needs `needs`; `body` does it.
    pub fn new(
        name: impl Into<String>,
        needs: &[Judge],
        body: impl Fn(&Bench) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            needs: needs.to_vec(),
            body: Box::new(body),
            is_long: false,
            preparation: None,
        }
    }

    /// This case is one of those that take longest: it starts before all others.
    #[must_use]
    pub fn long(mut self) -> Self {
        self.is_long = true;
        self
    }

    /// Before any case begins, `prepare` builds what this one runs. A busy machine may take an hour for it, and nobody watches.
    #[must_use]
    pub fn prepared_by(mut self, prepare: fn() -> Result<()>) -> Self {
        self.preparation = Some(prepare);
        self
    }
}

/// Where a case works: a folder of its own and the program under test.
pub struct Bench {
    /// Gone after the case.
    pub scratch: Scratch,
    program: Option<Program>,
}

impl Bench {
    /// The program under test; a case that uses it lists [`Judge::Program`] among its needs.
    #[must_use]
    pub fn creamery(&self) -> &Program {
        self.program.as_ref().expect("the case needs Judge::Program and does not say so")
    }
}

enum Outcome {
    Passed,
    Failed(String),
}

struct Arguments {
    filters: Vec<String>,
    skips: Vec<String>,
    exact: bool,
    list: bool,
    threads: usize,
}

/// Runs `cases` as the arguments of the process say; the exit status is that of a test binary.
#[must_use]
pub fn main(cases: Vec<Case>) -> ExitCode {
    let arguments = arguments(std::env::args().skip(1));
    let total = cases.len();
    let chosen: Vec<Case> = cases.into_iter().filter(|case| arguments.choose(&case.name)).collect();
    if arguments.list {
        for case in &chosen {
            println!("{}: test", case.name);
        }
        return ExitCode::SUCCESS;
    }
    println!("\nrunning {} tests", chosen.len());
    let start = Instant::now();
    let filtered = total - chosen.len();
    let mut failed: Vec<(String, String)> = Vec::new();
    let (mut ready, mut skipped) = (Vec::new(), 0);
    for case in chosen {
        match missing(&case) {
            None => ready.push(case),
            Some(reason) if Judges::required() => {
                println!("test {} ... FAILED ({reason})", case.name);
                failed.push((case.name, reason));
            }
            Some(reason) => {
                println!("test {} ... skipped: {reason}", case.name);
                skipped += 1;
            }
        }
    }
    let ready = prepared(ready, &mut failed);
    let passed = run_all(longest_first(ready), arguments.threads, &mut failed);
    if !failed.is_empty() {
        println!("\nfailures:");
    }
    for (name, reason) in &failed {
        println!("\n---- {name} ----\n{reason}");
    }
    let word = if failed.is_empty() { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {word}. {passed} passed; {} failed; {skipped} ignored; 0 measured; {filtered} filtered out; finished in {:.2}s\n",
        failed.len(),
        start.elapsed().as_secs_f64()
    );
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(101) }
}

fn missing(case: &Case) -> Option<String> {
    case.needs.iter().find_map(|judge| {
        let reason = Judges::here().missing(*judge)?;
        Some(format!("{judge} missing ({reason})"))
    })
}

/// Those of `cases` whose preparation worked.
fn prepared(cases: Vec<Case>, failed: &mut Vec<(String, String)>) -> Vec<Case> {
    let mut ready = Vec::new();
    for case in cases {
        match case.preparation.map_or(Ok(()), |prepare| prepare()) {
            Ok(()) => ready.push(case),
            Err(error) => {
                println!("test {} ... FAILED (it could not be prepared)", case.name);
                failed.push((case.name, format!("{error:#}")));
            }
        }
    }
    ready
}

/// The long ones, then the others, each in their order.
fn longest_first(mut cases: Vec<Case>) -> Vec<Case> {
    cases.sort_by_key(|case| !case.is_long);
    cases
}

/// Runs what can run on `threads` threads; returns how many passed.
fn run_all(cases: Vec<Case>, threads: usize, failed: &mut Vec<(String, String)>) -> usize {
    let waiting = Mutex::new(VecDeque::from(cases));
    let passed = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let next = lock(&waiting).pop_front();
                    let Some(case) = next else { return };
                    let start = Instant::now();
                    let outcome = run_watched(&case);
                    let seconds = start.elapsed().as_secs_f64();
                    match outcome {
                        Outcome::Passed => {
                            println!("test {} ... ok ({seconds:.1} s)", case.name);
                            passed.fetch_add(1, Ordering::Relaxed);
                        }
                        Outcome::Failed(reason) => {
                            println!("test {} ... FAILED ({seconds:.1} s)", case.name);
                            // At the end, too: but other cases may go on for an hour.
                            eprintln!("{}: {reason}", case.name);
                            lock(&failures).push((case.name, reason));
                        }
                    }
                }
            });
        }
    });
    failed.append(&mut lock(&failures));
    passed.into_inner()
}

/// Runs one case on a thread of its own, and cuts its mounts off when it does not come back.
fn run_watched(case: &Case) -> Outcome {
    let bench = match Scratch::new(&case.name) {
        Ok(scratch) => Bench { scratch, program: Program::find().ok() },
        Err(error) => return Outcome::Failed(format!("{error:#}")),
    };
    let (done, watch) = channel();
    std::thread::scope(|scope| {
        let (bench, body) = (&bench, &case.body);
        scope.spawn(move || {
            let result =
                catch_unwind(AssertUnwindSafe(|| body(bench))).unwrap_or_else(|panic| Err(told(&*panic)));
            let _ = done.send(result);
        });
        let (mut late, limit) = (false, case_limit());
        loop {
            match watch.recv_timeout(limit) {
                Ok(Ok(())) if !late => return Outcome::Passed,
                Ok(Ok(())) => return Outcome::Failed(format!("took more than {} s", limit.as_secs())),
                Ok(Err(error)) if late => return Outcome::Failed(format!("hung, mounts cut off: {error:#}")),
                Ok(Err(error)) => return Outcome::Failed(format!("{error:#}")),
                Err(RecvTimeoutError::Timeout) => {
                    if !late {
                        println!("test {} ... hangs: still running after {} s", case.name, limit.as_secs());
                    }
                    late = true;
                    bench.scratch.unmount_all();
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Outcome::Failed("the case vanished".to_owned());
                }
            }
        }
    })
}

fn told(panic: &(dyn Any + Send)) -> anyhow::Error {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref().copied());
    anyhow!("panicked: {}", text.unwrap_or("without words"))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Arguments {
    fn choose(&self, name: &str) -> bool {
        let matches =
            |filter: &String| if self.exact { name == filter } else { name.contains(filter.as_str()) };
        let wanted = self.filters.is_empty() || self.filters.iter().any(matches);
        wanted && !self.skips.iter().any(matches)
    }
}

fn arguments(words: impl Iterator<Item = String>) -> Arguments {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut found = Arguments {
        filters: Vec::new(),
        skips: Vec::new(),
        exact: false,
        list: false,
        // Most cases wait for disks and for the kernel's commits half of the time.
        threads: (cores + cores / 2).min(8),
    };
    let mut words = words.flat_map(|word| match word.split_once('=') {
        Some((name, value)) if name.starts_with("--") => vec![name.to_owned(), value.to_owned()],
        _ => vec![word],
    });
    while let Some(word) = words.next() {
        match word.as_str() {
            "--exact" => found.exact = true,
            "--list" => found.list = true,
            "--skip" => found.skips.extend(words.next()),
            "--test-threads" => {
                let count = words.next().and_then(|count| count.parse().ok());
                found.threads = count.filter(|count| *count > 0).unwrap_or(found.threads);
            }
            "--color" | "--format" | "--logfile" | "-Z" => drop(words.next()),
            flag if flag.starts_with('-') => {}
            filter => found.filters.push(filter.to_owned()),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{Case, arguments, longest_first};

    fn choose(words: &[&str], name: &str) -> bool {
        arguments(words.iter().map(|word| (*word).to_owned())).choose(name)
    }

    #[test]
    fn long_cases_start_first_and_the_others_keep_their_order() {
        let case = |name: &str| Case::new(name, &[], |_| Ok(()));
        let cases = vec![case("a"), case("b").long(), case("c"), case("d").long()];
        let names: Vec<String> = longest_first(cases).into_iter().map(|case| case.name).collect();
        assert_eq!(names, ["b", "d", "a", "c"]);
    }

    #[test]
    fn filters_choose_like_the_standard_runner() {
        assert!(choose(&[], "image/sha256"));
        assert!(choose(&["image"], "image/sha256"));
        assert!(!choose(&["mount"], "image/sha256"));
        assert!(!choose(&["image", "--skip", "sha"], "image/sha256"));
        assert!(!choose(&["--exact", "image"], "image/sha256"));
        assert!(choose(&["--nocapture", "--test-threads=3"], "image/sha256"));
    }
}
