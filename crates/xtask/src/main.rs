//! The project's own commands, run as `cargo xtask COMMAND`.
//!
//! `demo` and `test` are for a newcomer, the servers run `ci`, and developers use `tidy`, `readme` and `bench`. Everything is a plain
//! program over `cargo` and the host's tools, so you can read or change it without installing anything.

mod bare_root;
mod bench;
mod big_endian;
mod ci;
mod crash;
mod demo;
mod fuzz;
mod install;
mod licences;
mod proof;
mod release;
mod sanitize;
mod steps;
mod suites;
mod test;
mod tools;
mod watched;

use std::process::ExitCode;

use anyhow::{Result, bail};

const USAGE: &str = "usage: cargo xtask COMMAND

  demo             build Creamery, make an image of this source tree, work on it, let every judge of this host look at it
  test [FILTER..]  install what is missing for the tests (as root), build, run all tests
                   (a filter with a slash, as image/default, builds the program and the conformance tests alone:
                   cargo test -p creamery-conformance --test conformance -- FILTER)
  ci               every change: formatting, tidy, lints, documentation, all tests with every judge required, a share of the power cuts
  proof [STEP..]   before a release: what takes longer, each matrix as a whole; notes its result in docs/internals/proof.md
                   (--fstests DIR, --btrfs-progs DIR: checkouts for the suites that need one)
  bare-root        the README's two commands and .ci/run in a bare root folder of the distribution (as root; [demo|test|ci..])
  messages [ROOM]  every error message that a person can meet, to be read in a row
  tidy             the rules that a compiler does not know; --ratchet accepts today's debts, --voice lists sentences to rewrite
  licences         what is linked and where it comes from, by cargo-deny (cargo installs it)
  readme           write what is made from data into README.md, docs/coverage.md and docs/limitations.md
  release          what is handed out: a static program, packages of it, their sums (--out DIR; --try: each in a bare root folder, as root)
  publish          packs the crates for the registry, and sends nothing
  crash            power cuts on a simulated device (--seed S --states N --judged N)
  sanitize         tests of the rooms with unsafe code, and of those above, under AddressSanitizer and LeakSanitizer
  big-endian       tests of the structures of the disk and of the codecs on a big-endian machine, interpreted
  fuzz [TARGET..]  the fuzz targets, one after the other (--seconds N in all; --shrink the corpora instead)
  pjdfstest        the POSIX suite of that name on the mount (as root; cargo installs it)
  fsx              random reads and writes of one file on the mount, three seeds (--operations N; cargo installs it, or fstests has it: --checkout DIR)
  databases        PostgreSQL on a mount whose server is killed, recovered there and on Linux (--rounds N --seed S; as root)
  fsstress         work on a mount beside scrubs, its server killed now and then (--checkout DIR, of fstests; --rounds N)
  fstests          fstests on the mount, as root (--checkout DIR [--kernel] [TEST..]; a checkout that you have built)
  collection       btrfs-progs' own images, most of them broken, and those of other projects: by both checks, and as Linux shows
                   them (--checkout DIR [--beside DIR].. [CASE..], as root; a checkout of btrfs-progs, and of others)
  bench image      images from a tree of 30,000 files, beside mkfs.btrfs, the kernel and cp (--files --bytes --runs --dry)
  bench create     names through the library, beside the kernel: also lookup, lookup-warm, readdir, unlink, mixed
  bench early-unlock  creating with parents let go early, and with that switched off (--files --runs --dry)
  bench scaling       creating by threads of one filesystem, beside processes that share nothing (--files --runs --dry)
  bench fingers       creating with batches straight to their leaf, and with that switched off (--files --runs --dry)
  bench flat       creating ten million files beside a hundred thousand, with the same memory (--files --runs --dry)
  bench gate       how long a commit keeps strangers waiting, and commits of threads that sync: library beside the kernel (--bytes --runs --dry --quick; as root)
  bench fsync      4 KiB appended and synced by 1, 8 and 64 threads: library and mount, beside the kernel (--runs --dry --only WORD; as root, with fio)
  bench nocow-fsync
                   files overwritten in place and synced: library, and fio on the mount, beside the kernel (--runs --dry --only WORD; as root, with fio)
  bench nocow-leaf creates beside who looks for checksums for 50 ms, with the leaf let go of and kept (--runs --dry)
  bench seek       data and holes of a sparse file: library and mount, beside the kernel and a null server (--files --bytes --runs --dry --quick; as root)
  bench dbench     16 clients of a file server: library and mount, beside the kernel (--runs --dry; as root, with dbench)
  bench compress   compressed images beside mkfs.btrfs, compressed files beside the kernel: library and mount (--files --bytes --runs --dry; as root)
  bench quotas     files made and overwritten with and without quotas, beside the kernel (--files --bytes --runs --dry; as root)
  bench data       content of files, and a tree of them: library and mount, beside the kernel and a null server (--files --runs --dry --quick --only WORD; as root)
  bench direct     direct reads and writes of one file, many in flight: library, mount and bare file, beside the kernel (--bytes --seconds --runs --dry --quick --only WORD; as root, with fio)
  bench snapshot   snapshots taken and deleted through the library, beside the kernel (--files --runs --dry; as root)
  bench clone      clones of a file, and cp on the mount, beside the kernel (--files --bytes --runs --dry; as root)
  bench drop       creating while a subvolume of a million files is dropped, beside the kernel (--files --runs --dry; as root)
  bench fs_mark    empty files through the mount, beside the kernel, ntfs-3g, fuse2fs and null servers (--files --runs --dry; as root)
  bench requests   what daily work on a mount asks of it, by kind (--beside PROGRAM --files --bytes --runs; as root, with dbench)
  bench memory     peak memory for a million files and for a million names in one folder (--files --dry)
  bench check      verifying images that the kernel filled, beside btrfs check (--files --bytes --runs --dry; as root)
  bench sets       reading a large file of sets, also with members missing, beside the kernel's mount (--bytes --runs --dry; as root)
  bench scrub      scrubs beside the kernel's and beside work, and on devices that take their time (--files --runs --dry --only WORD; as root)
  bench check-memory
                   peak memory of verifying ten million files (--files --dry)";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[&str]) -> Result<()> {
    match words {
        ["demo"] => demo::demo(),
        ["test", filters @ ..] => test::test(filters),
        ["ci"] => ci::ci(),
        ["proof", words @ ..] => proof::proof(words),
        ["bare-root", steps @ ..] => bare_root::bare_root(steps),
        ["tidy"] => creamery_tidy::tidy(),
        ["licences"] => licences::check(),
        ["tidy", "--ratchet"] => creamery_tidy::accept_debts(),
        ["tidy", "--voice"] => creamery_tidy::list_voice(),
        ["messages"] => creamery_tidy::print_messages(None),
        ["messages", room] => creamery_tidy::print_messages(Some(room)),
        ["readme"] => creamery_tidy::write_pages(),
        ["release", options @ ..] => release::release(options),
        ["publish"] => release::try_publishing(),
        ["crash", options @ ..] => crash::crash(options),
        ["sanitize"] => sanitize::sanitize(&sanitize::ALL),
        ["big-endian"] => big_endian::big_endian(),
        ["fuzz", words @ ..] => fuzz::fuzz(words),
        ["pjdfstest"] => suites::pjdfstest(),
        ["fsx", options @ ..] => suites::fsx(options),
        ["databases", options @ ..] => suites::databases(options),
        ["fsstress", options @ ..] => suites::fsstress(options),
        ["fstests", options @ ..] => suites::fstests(options),
        ["collection", words @ ..] => suites::collection(words),
        ["bench", words @ ..] => bench::bench(words),
        [] | ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            Ok(())
        }
        _ => bail!("unknown command: {}\n{USAGE}", words.join(" ")),
    }
}
