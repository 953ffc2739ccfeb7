//! The program as a shell sees it: its output, and its exit status.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn creamery<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(dir: &Path, args: I) -> Output {
    Command::new(env!("CARGO_BIN_EXE_creamery"))
        .args(args)
        .current_dir(dir)
        .env_remove("SOURCE_DATE_EPOCH")
        .output()
        .unwrap()
}

/// Runs `words` and checks that it succeeds; returns the output.
fn ok(dir: &Path, words: &str) -> String {
    let output = creamery(dir, words.split(' '));
    assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs `words` and checks for this exit status and one line on stderr, which it returns.
fn refused(dir: &Path, words: &str, status: i32) -> String {
    let output = creamery(dir, words.split(' '));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(status), "{words}: {stderr}");
    assert_eq!(stderr.lines().count(), 1, "{words}: {stderr}");
    assert!(stderr.starts_with("creamery: "), "{words}: {stderr}");
    stderr
}

fn filled() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    std::fs::create_dir_all(source.join("folder")).unwrap();
    std::fs::write(source.join("folder/file"), b"content").unwrap();
    std::os::unix::fs::symlink("folder/file", source.join("link")).unwrap();
    ok(dir.path(), "mkfs -q --rootdir source disk.img");
    dir
}

#[test]
fn usage_errors_are_one_line_and_status_2() {
    let dir = tempfile::tempdir().unwrap();
    for (words, part) in [
        ("mkfs --no-such x.img", "--no-such"),
        ("mkfs", "IMAGE|DEVICE"),
        ("mkfs --csum md5 x.img", "md5"),
        ("mkfs -b many x.img", "many"),
        ("mkfs --shrink x.img", "--rootdir"),
        ("nonsense", "nonsense"),
        ("cp one", "missing destination"),
        ("inspect-internal dump-tree", "IMAGE"),
        ("inspect-internal nonsense", "nonsense"),
    ] {
        let line = refused(dir.path(), words, 2);
        assert!(line.contains(part) && line.contains("--help"), "{line}");
    }
}

#[test]
fn failures_say_what_where_and_what_to_do() {
    let dir = filled();
    for (words, parts) in [
        ("ls disk.img:/none", &["ls", "disk.img:/none", "not found"][..]),
        ("cat disk.img:/folder", &["cat", "disk.img:/folder", "directory", "use ls"]),
        ("rm disk.img:/folder", &["rm", "disk.img:/folder", "directory", "-r"]),
        ("mkdir disk.img:/folder", &["mkdir", "disk.img:/folder", "exists", "-p"]),
        ("mkdir disk.img:/a/b", &["mkdir", "disk.img:/a/b", "-p"]),
        ("cp source disk.img:/", &["cp", "source", "-r"]),
        ("cp source elsewhere", &["cp", "IMAGE:/PATH"]),
        ("mkfs disk.img", &["mkfs", "disk.img", "Btrfs", "-f"]),
        ("mkfs -O raid56 -b 300M new.img", &["mkfs", "raid56"]),
        ("mkfs new.img", &["mkfs", "new.img", "size"]),
        ("ls none.img", &["ls", "none.img", "No such file"]),
        ("ls source:/", &["ls", "source", "directory"]),
        ("inspect-internal dump-tree -t nonsense disk.img", &["nonsense"]),
        ("inspect-internal dump-tree -b 4096 disk.img", &["4096"]),
        ("inspect-internal dump-super source/folder/file", &["source/folder/file"]),
        ("ls --subvol none disk.img", &["none"]),
    ] {
        let line = refused(dir.path(), words, 1);
        for part in parts {
            assert!(line.contains(part), "{words}: {line}");
        }
    }
    assert!(!dir.path().join("new.img").exists());
}

#[test]
fn a_bad_source_date_epoch_is_refused_and_an_empty_one_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let mkfs = |epoch: &str| {
        Command::new(env!("CARGO_BIN_EXE_creamery"))
            .args(["mkfs", "-q", "-b", "300M", "x.img"])
            .current_dir(dir.path())
            .env("SOURCE_DATE_EPOCH", epoch)
            .output()
            .unwrap()
    };
    for epoch in ["yesterday", "-1", "+1", "9223372036854775808"] {
        let output = mkfs(epoch);
        assert_eq!(output.status.code(), Some(1), "{epoch}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(&format!("'{epoch}'")) && said.contains("since 1970"), "{said}");
        assert!(!dir.path().join("x.img").exists());
    }
    for epoch in ["", "9223372036854775807"] {
        assert!(mkfs(epoch).status.success(), "{epoch}");
        std::fs::remove_file(dir.path().join("x.img")).unwrap();
    }
}

#[test]
fn listings_as_json_can_be_parsed_and_say_everything() {
    let dir = filled();
    let name = OsStr::new("source/\u{fffd}");
    std::fs::write(dir.path().join(name), b"").unwrap();
    let bytes = std::os::unix::ffi::OsStrExt::from_bytes(b"source/\xff\n\x1b");
    std::fs::write(dir.path().join::<&OsStr>(bytes), b"").unwrap();
    ok(dir.path(), "mkfs -q -f --rootdir source disk.img");
    let listed: Value = serde_json::from_str(&ok(dir.path(), "ls --json -R disk.img")).unwrap();
    let rows = listed.as_array().unwrap();
    let find = |path: &str| rows.iter().find(|row| row["path"] == path).unwrap();
    assert_eq!(rows.len(), 5);
    assert_eq!(find("/folder/file")["size"], 7);
    assert_eq!(find("/link")["target"], "folder/file");
    assert_eq!(rows.iter().filter(|row| row["path_bytes"] == "2fff0a1b").count(), 1);
    let stat: Value = serde_json::from_str(&ok(dir.path(), "stat --json disk.img:/folder")).unwrap();
    assert_eq!((&stat[0]["type"], &stat[0]["subvolume"]), (&"directory".into(), &5.into()));
    let df: Value = serde_json::from_str(&ok(dir.path(), "df --json disk.img")).unwrap();
    assert!(df[0]["available"].as_u64().unwrap() > 1 << 20);
    let made: Value = serde_json::from_str(&ok(dir.path(), "mkfs --json -b 300M -L cream new.img")).unwrap();
    assert_eq!((&made["label"], &made["size"]), (&"cream".into(), &(300 << 20).into()));
    let empty: Value = serde_json::from_str(&ok(dir.path(), "ls --json new.img")).unwrap();
    assert_eq!(empty, Value::Array(Vec::new()));
}

#[test]
fn listings_have_the_shape_of_ls() {
    let dir = filled();
    assert_eq!(ok(dir.path(), "ls disk.img"), "folder\nlink\n");
    assert_eq!(ok(dir.path(), "ls disk.img:/folder/file"), "/folder/file\n");
    assert_eq!(ok(dir.path(), "ls -d disk.img:/folder"), "/folder\n");
    assert_eq!(ok(dir.path(), "ls -R disk.img"), "/:\nfolder\nlink\n\n/folder:\nfile\n");
    let long = ok(dir.path(), "ls -l disk.img");
    let lines: Vec<&str> = long.lines().collect();
    assert!(lines[0].starts_with('d') && lines[1].ends_with(" link -> folder/file"), "{long}");
}

#[test]
fn a_reader_that_goes_away_is_no_panic() {
    let dir = filled();
    let program = env!("CARGO_BIN_EXE_creamery");
    let script =
        format!("{program} inspect-internal dump-tree disk.img | head -1; {program} ls -lR disk.img | true");
    let output = Command::new("sh").args(["-c", &script]).current_dir(dir.path()).output().unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}

#[test]
fn every_feature_and_every_help_text_is_printed() {
    let dir = tempfile::tempdir().unwrap();
    let features = ok(dir.path(), "mkfs -O list-all");
    assert_eq!(features, ok(dir.path(), "mkfs --list-features"));
    assert!(features.contains("block-group-tree") && features.contains("not supported"));
    for command in
        ["mkfs", "mount", "umount", "ls", "cat", "stat", "cp", "mkdir", "rm", "df", "inspect-internal"]
    {
        assert!(ok(dir.path(), &format!("{command} --help")).contains("Usage"), "{command}");
    }
}

/// A name that would colour, move and title a terminal.
const LOUD: &str = "loud\u{1b}[31m\u{1b}]0;title\u{7}\nline\u{9b}2J";

#[test]
fn a_name_does_nothing_to_a_terminal_in_messages_and_copies() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    std::fs::create_dir_all(source.join(LOUD)).unwrap();
    std::fs::write(source.join(LOUD).join("file"), b"content").unwrap();
    ok(dir.path(), "mkfs -q --rootdir source disk.img");
    let loud = format!("disk.img:/{LOUD}");
    let calm = |bytes: &[u8]| {
        let text = std::str::from_utf8(bytes).unwrap();
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
        assert!(text.contains("loud\\u{1b}[31m"), "{text:?}");
        text.lines().count()
    };
    // Verbose copies, both ways: as many lines as entries.
    for (args, entries) in [(["cp", "-rv", &loud, "out"], 2), (["cp", "-rv", "source", "disk.img:/again"], 3)]
    {
        let output = creamery(dir.path(), args);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(calm(&output.stdout), entries);
    }
    let missing = format!("{loud}/none");
    let image = format!("{LOUD}.img:/x");
    let host = format!("source/{LOUD}/none");
    for args in [
        &["ls", &missing][..],
        &["cat", &loud],
        &["stat", &missing],
        &["rm", &loud],
        &["mkdir", &loud],
        &["cp", &missing, "out"],
        &["cp", &loud, "out"],
        &["cp", &host, "disk.img:/"],
        &["ls", &image],
        &["mkfs", &format!("{LOUD}/new.img"), "-b", "300M"],
        &["nonsense", LOUD],
        &["mkfs", "--csum", LOUD, "x.img"],
    ] {
        let output = creamery(dir.path(), args);
        assert!(!output.status.success(), "{args:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{args:?}: {text:?}");
        assert_eq!(text.lines().count(), 1, "{args:?}: {text}");
    }
}

#[test]
fn a_listing_in_a_pipe_has_the_bytes_of_names_and_json_any_name() {
    use std::os::unix::ffi::OsStrExt;
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    std::fs::create_dir(&source).unwrap();
    let names: [&[u8]; 4] = [LOUD.as_bytes(), b"\xff\xfe\"\\", b"\x7f\x01", "plain \u{fc}".as_bytes()];
    for name in names {
        std::fs::write(source.join(OsStr::from_bytes(name)), b"").unwrap();
    }
    ok(dir.path(), "mkfs -q --rootdir source disk.img");
    let listed = creamery(dir.path(), ["ls", "disk.img:/"]).stdout;
    for name in names {
        assert!(listed.windows(name.len()).any(|window| window == name), "{name:?}");
    }
    let json: Value = serde_json::from_str(&ok(dir.path(), "ls --json disk.img:/")).unwrap();
    assert_eq!(json.as_array().unwrap().len(), names.len());
}

#[test]
fn a_file_is_not_copied_to_a_folder_that_is_not_there() {
    let dir = filled();
    for words in ["cp disk.img:/folder/file new/", "cp source/folder/file disk.img:/new/"] {
        let line = refused(dir.path(), words, 1);
        assert!(line.contains("not a directory") && line.contains("new/"), "{line}");
    }
    assert!(!dir.path().join("new").exists());
    refused(dir.path(), "ls disk.img:/new", 1);
}

/// Runs `args` and interrupts it as soon as it writes to a file without a name, or lets it end; returns whether it ended well.
fn interrupted<S: AsRef<OsStr>>(dir: &Path, args: &[S]) -> bool {
    let mut child = Command::new(env!("CARGO_BIN_EXE_creamery")).args(args).current_dir(dir).spawn().unwrap();
    let open = format!("/proc/{}/fd", child.id());
    let writes = || {
        let files = std::fs::read_dir(&open).ok()?.flatten();
        let mut files = files.filter_map(|file| std::fs::read_link(file.path()).ok());
        files.find(|file| file.as_os_str().as_encoded_bytes().ends_with(b"(deleted)"))
    };
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.success();
        }
        if writes().is_some() {
            // The shell has a builtin `kill`, if no package provides the program.
            Command::new("sh").args(["-c", "kill -INT $0", &child.id().to_string()]).status().unwrap();
            return child.wait().unwrap().success();
        }
    }
}

#[test]
fn what_is_interrupted_leaves_no_half_file() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    std::fs::create_dir(&source).unwrap();
    for number in 0..16_u8 {
        std::fs::write(source.join(number.to_string()), vec![number; 2 << 20]).unwrap();
    }
    std::fs::write(source.join("large"), vec![1; 32 << 20]).unwrap();
    ok(dir.path(), "mkfs -q --rootdir source disk.img");
    std::fs::write(dir.path().join("old"), b"old").unwrap();
    let there = || {
        let entries = std::fs::read_dir(dir.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    let before = there();
    if interrupted(dir.path(), &["mkfs", "-q", "--rootdir", "source", "new.img"]) {
        ok(dir.path(), "check new.img");
        std::fs::remove_file(dir.path().join("new.img")).unwrap();
    }
    assert_eq!(there(), before);
    if interrupted(dir.path(), &["cp", "disk.img:/large", "new"]) {
        assert_eq!(std::fs::metadata(dir.path().join("new")).unwrap().len(), 32 << 20);
        std::fs::remove_file(dir.path().join("new")).unwrap();
    }
    assert_eq!(there(), before);
    let done = interrupted(dir.path(), &["cp", "disk.img:/large", "old"]);
    let len = std::fs::metadata(dir.path().join("old")).unwrap().len();
    assert_eq!(len, if done { 32 << 20 } else { 3 });
    assert_eq!(there(), before);
}

#[test]
fn what_comes_before_a_failure_stays_and_what_comes_behind_is_done() {
    let dir = filled();
    for (words, part) in [
        ("cp source/folder/file none disk.img:/", "none"),
        ("mkdir disk.img:/first disk.img:/first disk.img:/second", "first"),
        ("rm disk.img:/link disk.img:/none", "none"),
    ] {
        assert!(refused(dir.path(), words, 1).contains(part), "{words}");
    }
    assert_eq!(ok(dir.path(), "ls disk.img"), "file\nfirst\nfolder\nsecond\n");
    ok(dir.path(), "check disk.img");
}

#[test]
fn a_tree_with_hard_links_is_copied_over_itself() {
    let dir = filled();
    let source = dir.path().join("source");
    std::fs::hard_link(source.join("folder/file"), source.join("other")).unwrap();
    std::fs::hard_link(source.join("folder/file"), source.join("third")).unwrap();
    let links = || {
        let stat: Value = serde_json::from_str(&ok(
            dir.path(),
            "stat --json disk.img:/source/folder/file disk.img:/source/other disk.img:/source/third",
        ))
        .unwrap();
        let rows = stat.as_array().unwrap();
        rows.iter().for_each(|row| assert_eq!(row["inode"], rows[0]["inode"], "{stat}"));
        rows[0]["links"].as_u64().unwrap()
    };
    for _ in 0..3 {
        ok(dir.path(), "cp -a source disk.img:/");
        assert_eq!(links(), 3);
    }
    // The first name exists already, as another name of the file.
    ok(dir.path(), "rm disk.img:/source/folder/file");
    ok(dir.path(), "cp -a source disk.img:/");
    assert_eq!(links(), 3);
    for _ in 0..2 {
        ok(dir.path(), "cp -a disk.img:/source out");
        ok(dir.path(), "mkdir -p disk.img:/copies");
        ok(dir.path(), "cp -a disk.img:/source disk.img:/copies");
    }
    ok(dir.path(), "check disk.img");
}

#[test]
fn a_file_whose_size_the_host_does_not_tell_is_copied() {
    let dir = filled();
    let content = std::fs::read_to_string("/proc/version").unwrap();
    assert_eq!(std::fs::metadata("/proc/version").unwrap().len(), 0);
    for words in ["cp /proc/version disk.img:/", "cp -a /proc/version disk.img:/folder"] {
        ok(dir.path(), words);
    }
    assert_eq!(ok(dir.path(), "cat disk.img:/version disk.img:/folder/version"), content.repeat(2));
    ok(dir.path(), "mkfs -q -b 300M --rootdir /proc/sys/kernel/random random.img");
    assert_eq!(ok(dir.path(), "cat random.img:/poolsize").trim(), "256");
}

/// Runs a script in which `$c` is the program; returns its exit status and its stderr.
fn script(dir: &Path, script: &str) -> (Option<i32>, String) {
    let script = format!("c={}; {script}", env!("CARGO_BIN_EXE_creamery"));
    let output = Command::new("sh").args(["-c", &script]).current_dir(dir).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn what_cannot_be_printed_is_told_and_copied_all_the_same() {
    let dir = filled();
    for words in ["cp -rv source disk.img:/again", "cp -rv disk.img:/folder out"] {
        let (status, said) = script(dir.path(), &format!("$c {words} >/dev/full"));
        assert_eq!((status, said.lines().count()), (Some(1), 1), "{words}: {said}");
        assert!(said.contains("standard output") && !said.contains("larger image"), "{said}");
    }
    assert_eq!(ok(dir.path(), "cat disk.img:/again/folder/file"), "content");
    assert_eq!(std::fs::read(dir.path().join("out/file")).unwrap(), b"content");
    // A closed pipe is no failure.
    let (status, said) = script(dir.path(), "$c cp -rv source disk.img:/more | true");
    assert_eq!((status, &said[..]), (Some(0), ""));
    assert_eq!(ok(dir.path(), "cat disk.img:/more/folder/file"), "content");
}

#[test]
fn words_that_go_nowhere_are_no_success() {
    let dir = filled();
    let printing = [
        "ls disk.img:/",
        "ls --json disk.img:/",
        "cat disk.img:/folder/file",
        "stat disk.img:/link",
        "df disk.img",
        "find disk.img:/",
        "tar -c -f - disk.img:/",
        "quota status disk.img",
        "inspect-internal dump-super disk.img",
        "--help",
        "ls --help",
        "--version",
        "generate completions bash",
    ];
    for words in printing {
        for (to, why) in [(">&-", "Bad file descriptor"), (">/dev/full", "No space left on device")] {
            let (status, said) = script(dir.path(), &format!("$c {words} {to}"));
            assert_eq!((status, said.lines().count()), (Some(1), 1), "{words} {to}: {said}");
            assert!(
                (said.contains("standard output") || words.contains("tar")) && said.contains(why),
                "{words} {to}: {said}"
            );
        }
    }
    let (status, said) = script(dir.path(), "$c check disk.img >&-");
    assert_eq!(status, Some(8), "{said}");
    // These have no output.
    for words in ["mkdir disk.img:/made", "touch disk.img:/made/file", "cp disk.img:/made/file out"] {
        let (status, said) = script(dir.path(), &format!("$c {words} >&- 2>&- <&-"));
        assert_eq!(status, Some(0), "{words}: {said}");
    }
    ok(dir.path(), "check disk.img");
}

#[test]
fn a_full_standard_error_changes_no_exit_status() {
    let dir = filled();
    for (words, expected) in
        [("ls disk.img:/none", 1), ("nonsense", 2), ("check -p disk.img", 0), ("check none", 8)]
    {
        assert_eq!(script(dir.path(), &format!("$c {words} 2>/dev/full")).0, Some(expected), "{words}");
    }
}

#[test]
fn a_verdict_that_cannot_be_printed_is_none() {
    let dir = filled();
    for words in ["check disk.img", "check --json disk.img"] {
        let (status, said) = script(dir.path(), &format!("$c {words} >/dev/full"));
        assert_eq!(status, Some(8), "{words}: {said}");
    }
}

#[test]
fn a_full_host_is_not_called_a_full_image() {
    let dir = filled();
    let (status, said) = script(dir.path(), "$c cat disk.img:/folder/file >/dev/full");
    assert_eq!(status, Some(1));
    assert!(said.contains("host") && !said.contains("larger image"), "{said}");
}

#[test]
fn sizes_and_owners_that_cannot_be_are_named() {
    let dir = filled();
    let line = refused(dir.path(), "mkfs -b 8E new.img", 1);
    assert!(line.contains("new.img") && line.contains("9223372036854775808"), "{line}");
    for words in [
        "mkfs --rootdir source --owner 4294967295:0 new.img",
        "mkfs --rootdir source --owner 0:4294967295 new.img",
    ] {
        assert!(refused(dir.path(), words, 2).contains("4294967295"), "{words}");
    }
    for option in ["uid=4294967295", "gid=4294967295"] {
        assert!(refused(dir.path(), &format!("mount -o {option} disk.img source"), 1).contains(option));
    }
}

#[test]
fn a_mount_that_fails_leaves_no_log() {
    let dir = filled();
    std::fs::create_dir(dir.path().join("mnt")).unwrap();
    let script_of = |words: &str| format!("XDG_STATE_HOME=$PWD/state $c mount {words}");
    for words in
        ["-o subvol=none disk.img mnt", "-o subvolid=4711 disk.img mnt", "disk.img source/folder/file"]
    {
        let (status, said) = script(dir.path(), &script_of(words));
        assert_eq!((status, said.lines().count()), (Some(1), 1), "{said}");
        let logs = std::fs::read_dir(dir.path().join("state/creamery"));
        assert_eq!(logs.map_or(0, Iterator::count), 0, "{words}");
    }
}

#[test]
fn a_path_of_the_host_is_not_told_as_one_of_the_image() {
    let dir = filled();
    for target in ["/dev/full", "/none/there"] {
        let line = refused(dir.path(), &format!("cp disk.img:/folder/file {target}"), 1);
        assert!(line.contains(target.trim_end_matches("/there")) && !line.contains("disk.img:"), "{line}");
    }
    let line = refused(dir.path(), "cp disk.img:/folder/none /dev/null", 1);
    assert!(line.contains("disk.img:/folder/none"), "{line}");
}
