//! Filesystems of several devices as they are mounted, and as each device is shown.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::walk::{Compare, Walk, expect_same};
use creamery_testkit::{FuseMount, LoopDevice, LoopMount, Run};
use serde_json::Value;

use crate::sets::{Set, walk_of_kernel};
use crate::support::{JUDGED, MOUNTED, expect_failure, expect_refusal};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("sets/mounts", &MOUNTED, mounts),
        Case::new("sets/mounts-known-by-each-member", &MOUNTED, known_by_each),
        Case::new("sets/a-log-of-a-set", &MOUNTED, log),
        Case::new("sets/shown-as-by-btrfs-progs", &MOUNTED, shown),
        Case::new("sets/found-on-the-host", &JUDGED, on_host),
    ]
}

fn mounted(bench: &Bench, image: &Path, options: &str, want: &Walk) -> Result<FuseMount> {
    let mount = FuseMount::mount(bench.creamery(), image, &bench.scratch.file("mount"), options)?;
    expect_same("the mount", want, &Walk::take(mount.dir())?, &Compare::default())?;
    Ok(mount)
}

/// For reading alone: all members found, named, and one away.
fn mounts(bench: &Bench) -> Result<()> {
    let set = Set::made(bench, "set", &["-d", "raid1", "-m", "raid1"], 2)?;
    let try_mount = |options: &str| {
        let dir = bench.scratch.file("mount");
        bench.creamery().run(["mount", "-o", options]).arg(set.first()).arg(dir)
    };
    std::fs::create_dir_all(bench.scratch.file("mount"))?;
    expect_refusal(try_mount("rw"), &["writing to a filesystem of 2 devices", "-o ro"])?;
    let mount = mounted(bench, set.first(), "ro", &set.truth)?;
    for words in [&["df"][..], &["filesystem", "usage"], &["stats"], &["device", "stats"], &["mounts"]] {
        let dir: &[&Path] = if words == ["mounts"] { &[] } else { &[mount.dir()] };
        bench.creamery().run(words).args(dir).ok()?;
    }
    expect_failure(bench.creamery().run(["tune", "-n"]).arg(&set.members[1]), &["in use"])?;
    // Another member names the filesystem as well; two mounts that read are no harm.
    let second = FuseMount::mount(bench.creamery(), &set.members[1], &bench.scratch.file("second"), "ro")?;
    bench.creamery().run(["ls"]).arg(crate::support::inside(&set.members[1], "/")).ok()?;
    bench.creamery().run(["umount"]).arg(&set.members[1]).ok()?;
    drop(second);
    ensure!(mount.dir().join("nocow").is_file(), "the first mount is gone");
    mount.unmount()?;
    let set = set.apart(bench, "apart")?;
    let alone = walk_of_kernel(bench, &set.members[..1], "ro,degraded")?;
    let device = format!("ro,device={}", set.members[1].display());
    let mount = mounted(bench, set.first(), &device, &set.truth)?;
    let said = bench.creamery().run(["filesystem", "show"]).arg(mount.dir()).ok()?.stdout_text();
    let paths = |path: &PathBuf| said.contains(&format!("path {}\n", path.display()));
    ensure!(set.members.iter().all(paths), "{said}");
    mount.unmount()?;
    let at = |options: &str| {
        let dir = bench.scratch.file("mount");
        bench.creamery().run(["mount", "-o", options]).arg(set.first()).arg(dir)
    };
    expect_refusal(at("ro"), &["device 2 is missing", "-o device=PATH", "-o ro,degraded"])?;
    expect_refusal(at("ro,device="), &["device"])?;
    expect_refusal(at("degraded"), &["writing to a filesystem of 2 devices", "-o ro"])?;
    let mount = mounted(bench, set.first(), "ro,degraded", &alone)?;
    let said = bench.creamery().run(["filesystem", "show"]).arg(mount.dir()).ok()?.stdout_text();
    ensure!(said.contains("Total devices 2") && said.contains("*** Some devices missing"), "{said}");
    mount.unmount()
}

/// Each member of a mounted set names the mount, whichever was named first; members may have any name.
fn known_by_each(bench: &Bench) -> Result<()> {
    use std::os::unix::ffi::OsStringExt;
    let mut set = Set::made(bench, "set", &["-d", "raid1", "-m", "raid1"], 2)?.apart(bench, "apart")?;
    let odd = set.members[1].with_file_name(std::ffi::OsString::from_vec(b"odd, \xff.img".to_vec()));
    std::fs::rename(&set.members[1], &odd)?;
    set.members[1].clone_from(&odd);
    let dir = bench.scratch.dir("mount")?;
    let mount = || {
        let mount = bench.creamery().run(["mount", "-o", "ro", "--device"]).arg(&odd);
        mount.arg(set.first()).arg(&dir).ok()
    };
    for member in &set.members {
        mount()?;
        expect_same("the mount", &set.truth, &Walk::take(&dir)?, &Compare::default())?;
        for words in [&["stats"][..], &["sync"], &["df"], &["filesystem", "show"], &["filesystem", "usage"]] {
            bench.creamery().run(words).arg(member).ok()?;
        }
        let told = |member: &Path| -> Result<Value> {
            let said = bench.creamery().run(["filesystem", "show", "--json"]).arg(member).ok()?.stdout_text();
            Ok(serde_json::from_str(&said)?)
        };
        let (devices, of_first) = (told(member)?[0]["devices"].clone(), told(&dir)?[0]["devices"].clone());
        ensure!(devices == of_first && devices[1]["path_bytes"].is_string(), "{devices}\n{of_first}");
        bench.creamery().run(["umount"]).arg(member).ok()?;
        ensure!(!dir.join("nocow").exists(), "it is mounted still");
    }
    // Alone, it is mounted by the option of the command as by that of the mount.
    let alone = walk_of_kernel(bench, &set.members[..1], "ro,degraded")?;
    bench.creamery().run(["mount", "--degraded", "-o", "ro"]).arg(set.first()).arg(&dir).ok()?;
    expect_same("the mount", &alone, &Walk::take(&dir)?, &Compare::default())?;
    bench.creamery().run(["umount"]).arg(&dir).ok().map(drop)
}

/// What was synced after the last commit cannot be replayed, and the message says so.
fn log(bench: &Bench) -> Result<()> {
    let set = Set::made(bench, "set", &["-d", "raid1", "-m", "raid1"], 2)?;
    let copies = bench.scratch.dir("copies")?;
    crate::sets::with_kernel(bench, &set.members, "rw", |dir| {
        let file = std::fs::File::create(dir.join("synced"))?;
        file.sync_all()?;
        std::io::Write::write_all(&mut &file, b"synced")?;
        file.sync_all()?;
        // As a power cut would leave them.
        Run::new("cp").arg("--sparse=always").args(&set.members).arg(&copies).ok().map(drop)
    })?;
    let image = copies.join("m1.img");
    let dir = bench.scratch.dir("mount")?;
    let refused = bench.creamery().run(["mount", "-o", "ro"]).arg(&image).arg(&dir);
    expect_refusal(refused, &["several devices", "ro,nologreplay", "with Linux"])?;
    let mount = FuseMount::mount(bench.creamery(), &image, &dir, "ro,nologreplay")?;
    ensure!(
        mount.dir().join("nocow").is_file() && !mount.dir().join("synced").exists(),
        "not the last commit"
    );
    mount.unmount()
}

/// Lines without what differs by nature: the names of devices, and what a kernel keeps for itself.
fn comparable(text: &str, names: &[(String, String)]) -> Vec<String> {
    let named = names.iter().fold(text.to_owned(), |text, (name, member)| text.replace(name, member));
    let lines = named.lines().filter(|line| !line.contains("Global") && !line.starts_with("warning"));
    lines
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .filter(|line| !line.starts_with("--"))
        .collect()
}

/// Our images and mounts tell the numbers of each device that the kernel's mount tells.
fn shown(bench: &Bench) -> Result<()> {
    for (profile, sizes) in [
        ("raid1", &[256, 256][..]),
        ("raid10", &[256, 256, 256, 256]),
        ("raid0", &[256, 300, 400]),
        ("raid1c3", &[256, 256, 300]),
    ] {
        let sizes: Vec<u64> = sizes.iter().map(|size| size << 20).collect();
        let set = Set::of_sizes(bench, profile, &["-L", profile, "-d", profile, "-m", profile], &sizes)?;
        let others: Vec<LoopDevice> =
            set.members[1..].iter().map(|member| LoopDevice::attach(member, false)).collect::<Result<_>>()?;
        let options: String =
            others.iter().map(|device| format!(",device={}", device.path().display())).collect();
        let linux = LoopMount::mount(set.first(), &bench.scratch.file("linux"), &format!("rw{options}"))?;
        let commands = [
            &["filesystem", "show", "--raw"][..],
            &["filesystem", "df", "-b"],
            &["filesystem", "usage", "-b"],
            &["filesystem", "usage", "-b", "-T"],
            &["device", "stats"],
        ];
        let mut theirs = Vec::new();
        for words in commands {
            theirs.push(Run::new("btrfs").args(words).arg(linux.dir()).ok()?.stdout_text());
        }
        let devices = Run::new("btrfs").args(["filesystem", "show"]).arg(linux.dir()).ok()?.stdout_text();
        let paths = devices.lines().filter_map(|line| line.split(" path ").nth(1));
        let paths: Vec<String> = paths.map(str::to_owned).collect();
        let names: Vec<_> =
            paths.iter().cloned().zip((1..).map(|number| format!("DEVICE{number}"))).collect();
        let ours: Vec<_> = set
            .members
            .iter()
            .map(|member| member.display().to_string())
            .zip((1..).map(|number| format!("DEVICE{number}")))
            .collect();
        linux.unmount()?;
        others.into_iter().try_for_each(LoopDevice::detach)?;
        let mount = FuseMount::mount(bench.creamery(), set.first(), &bench.scratch.file("mount"), "ro")?;
        for (words, theirs) in commands.iter().zip(&theirs) {
            for place in [set.first(), mount.dir()] {
                let said = bench.creamery().run(*words).arg(place).ok()?.stdout_text();
                let (want, have) = (comparable(theirs, &names), comparable(&said, &ours));
                ensure!(want == have, "{profile}: {words:?}: btrfs-progs\n{theirs}\nhere\n{said}");
            }
        }
        mount.unmount()?;
        let said =
            bench.creamery().run(["filesystem", "usage", "--json"]).arg(set.first()).ok()?.stdout_text();
        let json: Value = serde_json::from_str(&said)?;
        let devices = json[0]["devices"].as_array().context("no devices")?;
        ensure!(
            devices.len() == sizes.len()
                && devices.iter().zip(&sizes).all(|(device, size)| device["size"] == *size),
            "{json}"
        );
        let data = json[0]["block_groups"]
            .as_array()
            .context("no groups")?
            .iter()
            .find(|group| group["kind"] == "Data");
        ensure!(
            data.is_some_and(|data| data["devices"].as_array().is_some_and(|on| !on.is_empty())),
            "{json}"
        );
    }
    Ok(())
}

/// By its label and its UUID, and among all, with one device missing, too.
fn on_host(bench: &Bench) -> Result<()> {
    let label = format!("set-{}", std::process::id());
    let set = Set::made(bench, "set", &["-L", &label, "-d", "raid1", "-m", "raid1"], 2)?;
    let said = bench.creamery().run(["filesystem", "show", "--json"]).arg(set.first()).ok()?.stdout_text();
    let json: Value = serde_json::from_str(&said)?;
    let uuid = json[0]["uuid"].as_str().context("no UUID")?.to_owned();
    ensure!(
        json[0]["device_count"] == 2 && json[0]["devices"].as_array().is_some_and(|all| all.len() == 2),
        "{json}"
    );
    let (one, other) =
        (LoopDevice::attach(&set.members[0], true)?, LoopDevice::attach(&set.members[1], true)?);
    let ours = |words: &[&str]| -> Result<String> {
        Ok(bench.creamery().run(["filesystem", "show"]).args(words).ok()?.stdout_text())
    };
    let theirs = Run::new("btrfs").args(["filesystem", "show"]).arg(one.path()).ok()?.stdout_text();
    let want = comparable(&theirs, &[]);
    for words in [&[&label[..]][..], &[&uuid], &[&uuid.to_uppercase()]] {
        ensure!(comparable(&ours(words)?, &[]) == want, "{words:?}: {}\nbtrfs-progs: {theirs}", ours(words)?);
    }
    let by_device = one.path().display().to_string();
    ensure!(
        comparable(&ours(&[&by_device])?, &[]) == want,
        "{}\nbtrfs-progs: {theirs}",
        ours(&[&by_device])?
    );
    let all = bench.creamery().run(["filesystem", "show"]).output()?.stdout_text();
    ensure!(all.contains(&uuid) && all.contains(&by_device), "{all}");
    let only_mounted = bench.creamery().run(["filesystem", "show", "--mounted"]).output()?.stdout_text();
    ensure!(!only_mounted.contains(&uuid), "{only_mounted}");
    expect_refusal(
        bench.creamery().run(["filesystem", "show", "no-such-label"]),
        &["no-such-label", "not found"],
    )?;
    other.detach()?;
    let away = bench.scratch.dir("away")?.join("m2.img");
    std::fs::rename(&set.members[1], &away)?;
    let theirs = Run::new("btrfs").args(["filesystem", "show"]).arg(one.path()).output()?.stdout_text();
    let said = ours(&[&label])?;
    ensure!(
        comparable(&said, &[]) == comparable(&theirs, &[]) && said.contains("*** Some devices missing"),
        "{said}\nbtrfs-progs: {theirs}"
    );
    // So does a member, as an image and as a device, whether or not what is missing is borne.
    let expect_shown = |place: &Path| -> Result<()> {
        for words in [&["filesystem", "show"][..], &["filesystem", "show", "--degraded"]] {
            let said = bench.creamery().run(words).arg(place).ok()?.stdout_text();
            let said = said.replace(&place.display().to_string(), &by_device);
            ensure!(comparable(&said, &[]) == comparable(&theirs, &[]), "{said}\nbtrfs-progs: {theirs}");
        }
        Ok(())
    };
    expect_shown(one.path())?;
    one.detach()?;
    expect_shown(set.first())?;
    let said = bench.creamery().run(["filesystem", "show"]).arg(set.first()).arg("--device").arg(&away);
    let said = said.ok()?.stdout_text();
    ensure!(!said.contains("missing"), "{said}");
    Ok(())
}
