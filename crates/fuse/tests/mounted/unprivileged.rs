//! Unprivileged mounts through `fusermount3`, as the user nobody, with the null server as a separate program.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::harness::{scratch, skip};

/// Runs in its own mount namespace, where `/dev/fuse` is open to all users regardless of the machine's
/// settings. Arguments: a scratch directory, the mount point in it, the server.
const SCRIPT: &str = r#"
    mknod -m 666 "$1/fuse" c 10 229
    mount --bind "$1/fuse" /dev/fuse
    mkfifo "$1/out"
    nobody="setpriv --reuid=65534 --regid=65534 --clear-groups"
    $nobody "$3" --threads 2 "$2" > "$1/out" &
    # It has this script's output, too: left behind, it would keep whoever reads that waiting.
    trap "kill $! 2> /dev/null || :" EXIT
    read line < "$1/out"
    echo "server: $line"
    grep " $2 " /proc/self/mounts
    $nobody sh -euc 'cd "$0"; echo data > made; stat -c %s,%u made; ls -a | wc -l' "$2"
    if ls "$2" 2> "$1/error"; then echo "root got in without allow_other"; fi
    $nobody fusermount3 -u "$2"
    wait $!
    echo "server ended: $?"
"#;

/// The example beside this test's own program, if it was built.
fn null_server() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let path = own.parent()?.parent()?.join("examples/null");
    path.is_file().then_some(path)
}

fn runs(program: &str, argument: &str) -> bool {
    let status = Command::new(program).arg(argument).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

#[test]
fn nobody_mounts_and_unmounts_through_the_helper() {
    let test = "nobody_mounts_and_unmounts_through_the_helper";
    if !rustix::process::geteuid().is_root() {
        return skip(test, "only root can become nobody");
    }
    if !runs("fusermount3", "-V") {
        return skip(test, "fusermount3 is not installed (package fuse3)");
    }
    if !runs("unshare", "--mount") || !runs("setpriv", "-d") {
        return skip(test, "unshare and setpriv (package util-linux) are missing or not permitted");
    }
    let Some(server) = null_server() else { return skip(test, "examples/null is not built") };
    let dir = scratch(test);
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755)).unwrap();
    // A copy: the user nobody may not have access to the build directory.
    std::fs::copy(server, dir.join("null")).unwrap();
    let point = dir.join("mnt");
    std::fs::create_dir(&point).unwrap();
    std::os::unix::fs::chown(&point, Some(65_534), Some(65_534)).unwrap();
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-euc", SCRIPT, "sh"])
        .args([&dir, &point, &dir.join("null")])
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&output.stdout).into_owned();
    let told = format!("{words}\n{}", String::from_utf8_lossy(&output.stderr));
    let place = point.display();
    let lines: Vec<_> = words.lines().collect();
    assert!(output.status.success(), "{told}");
    assert_eq!(lines[0], format!("server: mounted on {place}"), "{told}");
    let options = "rw,nosuid,nodev,relatime,user_id=65534,group_id=65534,default_permissions";
    assert!(lines[1].starts_with(&format!("null {place} fuse.creamery-null {options}")), "{told}");
    assert_eq!(lines[2..], ["5,65534", "2", "server ended: 0"], "{told}");
    std::fs::remove_dir_all(&dir).unwrap();
}
